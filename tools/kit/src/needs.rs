//! What tests and commands need of this machine beside cargo, git and Python: how each is looked
//! for, and what is installed to get it. Tests name them in `#[ignore = "needs …"]`.

use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Result, anyhow};

use crate::bootable;
use crate::context::Context;
use crate::environment::Environment;
use crate::image::Images;
use crate::process::Run;
use crate::say;
use crate::timing::{INSTALLATION, MACHINE_LOOK};

/// Something that a machine may lack.
#[derive(Debug)]
pub struct Need {
    /// As tests name it.
    pub name: &'static str,
    /// Its programs, each with the package of Debian that has it. Those that are missing are
    /// installed, where apt-get is there and this user may.
    programs: &'static [(&'static str, &'static str)],
    /// Looks for the rest of it. The inner error is why this machine lacks it, the outer one why it
    /// could not be got where it should be there.
    look: fn(&Context) -> Result<Result<(), String>>,
    /// The reason, if it is missing.
    missing: OnceLock<Result<Option<String>, String>>,
}

/// The Needs that tests may name.
static ALL: [&Need; 19] = [
    &TIME,
    &SSHD,
    &DOCKER,
    &MOTO,
    &EC2_MACHINES,
    &EC2_RULES,
    &ROOT,
    &MOUNT,
    &NAMESPACES,
    &CGROUPS,
    &SYSTEMD,
    &PACKAGE_INDEX,
    &TWO_PYTHONS,
    &OPENSSL,
    &CURL,
    &WGET,
    &DASH,
    &BUSYBOX,
    &DPKG,
];

/// More than half a minute of waiting: a fast run leaves such a test to a whole one.
static TIME: Need = Need::program("time", &[]);

/// OpenSSH's server, which tests start as the current user.
pub static SSHD: Need = Need::program("sshd", &[("sshd", "openssh-server")]);

/// The programs that copy files over SSH, which `bench data` compares with.
pub static COPIERS: Need = Need::program("copiers", &[("rsync", "rsync"), ("scp", "openssh-client"), ("tar", "tar")]);

/// A Docker engine, with the images of nodes. No engine is installed; the images are made.
pub static DOCKER: Need = Need::new("docker", &[], |context| Ok(Images::ensure(context)?.map(drop)));

/// moto, the mock of AWS's calls, in an environment of its own.
pub static MOTO: Need = Need::new("moto", &[], |context| Environment::moto(context).map(|_| Ok(())));

/// What the EC2 on loopback boots machines with.
pub static EC2_MACHINES: Need =
    Need::new("ec2 machines", &bootable::PROGRAMS, |_| Ok(bootable::missing().map_or(Ok(()), Err)));

/// What the EC2 on loopback enforces the rules of security groups with: a control group for each
/// machine, and rules about packets by control group.
static EC2_RULES: Need = Need::new("ec2 rules", &[("nft", "nftables")], |_| {
    shell(
        "this user cannot make rules about packets for the processes of a control group",
        "at=$(awk '$3 == \"cgroup2\" && index($2, \"/sys/fs/cgroup\") == 1 { print $2; exit }' /proc/mounts)
         [ -n \"$at\" ]
         at=$at$(sed -n 's/^0:://p' /proc/self/cgroup)
         at=${at%/}/skyward-needs-$$
         mkdir $at
         trap 'rmdir $at' EXIT
         printf 'table ip skyward_needs {
             chain sources {
                 type filter hook output priority mangle;
                 socket cgroupv2 level 1 \"%s\" meta mark set 1
             }
             chain translate {
                 type nat hook postrouting priority srcnat;
                 ip saddr 127.0.0.1 ip daddr 127.9.9.9 snat to 127.9.9.8
             }
         }
         ' \"${at#/sys/fs/cgroup/}\" | nft -c -f -",
    )
});

/// The superuser, who makes users, and processes of them.
static ROOT: Need = Need::new(
    "root",
    &[("useradd", "passwd"), ("setpriv", "util-linux"), ("prlimit", "util-linux"), ("pkill", "procps")],
    |_| {
        Ok(match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err("this user is not root".into()),
        })
    },
);

/// Mounting a file system.
static MOUNT: Need = Need::new("mount", &[("mount", "mount")], |_| {
    shell(
        "this user cannot mount a file system",
        "folder=$(mktemp -d)
         trap 'umount -l \"$folder\" || true; rmdir \"$folder\"' EXIT
         mount -t tmpfs -o size=64k none \"$folder\"",
    )
});

/// Namespaces of mounts, host names and networks, and rules about packets in them.
static NAMESPACES: Need = Need::new(
    "namespaces",
    &[("unshare", "util-linux"), ("mount", "mount"), ("ip", "iproute2"), ("nft", "nftables")],
    |_| {
        shell(
            "this user cannot make namespaces with networks of their own",
            "unshare --mount --uts --net sh -euc '
                 mount -t tmpfs none /run/lock
                 echo skyward >/proc/sys/kernel/hostname
                 ip link set lo up
                 ip link add skya type veth peer name skyb
                 nft add table inet skyward
             '
             ip netns add skyward-needs-$$
             trap 'ip netns del skyward-needs-$$' EXIT",
        )
    },
);

/// Control groups that limit memory.
static CGROUPS: Need = Need::new("cgroups", &[], |_| {
    shell(
        "this user cannot make a control group that limits memory",
        "at=/sys/fs/cgroup limit=memory.max
         [ ! -e $at/memory/memory.limit_in_bytes ] || at=$at/memory limit=memory.limit_in_bytes
         mkdir $at/skyward-needs-$$
         trap 'rmdir $at/skyward-needs-$$' EXIT
         echo 268435456 >$at/skyward-needs-$$/$limit",
    )
});

/// systemd, which boots in namespaces, on this host's files and with control groups of its own.
static SYSTEMD: Need = Need::new(
    "systemd",
    &[("systemctl", "systemd"), ("unshare", "util-linux"), ("setpriv", "util-linux"), ("mount", "mount")],
    |_| {
        shell(
            "this user cannot boot a system in namespaces",
            "folder=$(mktemp -d)
             trap 'rmdir \"$folder\"' EXIT
             unshare --mount sh -euc '
                 mount -t tmpfs none \"$1\"
                 cd \"$1\"
                 mkdir groups upper work root
                 mount -t cgroup2 none groups
                 mkdir groups/skyward-needs-$$
                 rmdir groups/skyward-needs-$$
                 mount -t overlay -o \"lowerdir=/,upperdir=$1/upper,workdir=$1/work\" none root
                 unshare --cgroup --mount --pid --uts --ipc --net --fork mount -t proc none root/proc
             ' needs \"$folder\"",
        )
    },
);

/// An index of Python packages, as pip is configured here.
static PACKAGE_INDEX: Need = Need::new("package index", &[], |_| {
    shell(
        "`python3 -m pip` cannot download a package here",
        "folder=$(mktemp -d)
         trap 'rm -r \"$folder\"' EXIT
         python3 -m pip download -q --no-deps --retries 0 --timeout 10 -d \"$folder\" iniconfig==2.0.0",
    )
});

/// Two minor versions of Python that environments can have.
static TWO_PYTHONS: Need = Need::new("two pythons", &[], |_| {
    shell(
        "this host has no two minor versions of Python from 3.10 on, in PATH or in pyenv",
        "for folder in $(printf %s \"$PATH\" | tr : '\\n' | grep -v '/shims$') \"${PYENV_ROOT:-$HOME/.pyenv}\"/versions/*/bin; do
             for python in \"$folder\"/python3.1[0-4]; do
                 [ ! -x \"$python\" ] || basename \"$python\"
             done
         done | sort -u | grep -c . | { read -r count; [ \"$count\" -ge 2 ]; }",
    )
});

static OPENSSL: Need = Need::program("openssl", &[("openssl", "openssl")]);
static CURL: Need = Need::program("curl", &[("curl", "curl")]);
static WGET: Need = Need::program("wget", &[("wget", "wget")]);
static DASH: Need = Need::program("dash", &[("dash", "dash")]);
static BUSYBOX: Need = Need::program("busybox", &[("busybox", "busybox")]);

/// Debian's list of installed packages.
static DPKG: Need = Need::program("dpkg", &[("dpkg-query", "dpkg")]);

/// Finds one by its name.
pub fn find(name: &str) -> Option<&'static Need> {
    ALL.into_iter().find(|need| need.name == name)
}

/// The names that tests may use.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|need| need.name)
}

impl Need {
    const fn new(
        name: &'static str,
        programs: &'static [(&'static str, &'static str)],
        look: fn(&Context) -> Result<Result<(), String>>,
    ) -> Self {
        Self { name, programs, look, missing: OnceLock::new() }
    }

    /// One that consists of its programs.
    const fn program(name: &'static str, programs: &'static [(&'static str, &'static str)]) -> Self {
        Self::new(name, programs, |_| Ok(Ok(())))
    }

    /// Gets it, and returns the reason if this machine lacks it all the same. The first call looks;
    /// later calls repeat its answer.
    ///
    /// # Errors
    ///
    /// It should be there, and getting it failed: an index does not answer, a package has another
    /// content than before, an image cannot be made.
    pub fn missing(&self, context: &Context) -> Result<Option<&str>> {
        let missing = self.missing.get_or_init(|| match self.get(context) {
            Ok(got) => Ok(got.err()),
            Err(error) => Err(format!("cannot get {}: {error:#}", self.name)),
        });
        missing.as_ref().map(Option::as_deref).map_err(|error| anyhow!("{error}"))
    }

    fn get(&self, context: &Context) -> Result<Result<(), String>> {
        let absent = || self.programs.iter().filter(|(program, _)| !bootable::is_here(program));
        let packages: Vec<&str> = absent().map(|(_, package)| *package).collect();
        if !packages.is_empty() {
            install(&packages);
        }
        if let Some((program, package)) = absent().next() {
            return Ok(Err(format!("there is no `{program}` here: apt-get install -y {package}")));
        }
        (self.look)(context)
    }
}

/// Installs packages of Debian, where apt-get is there and this user may.
fn install(packages: &[&str]) {
    /// apt-get lets only one process install at a time, and its lists are fetched once.
    static IS_UPDATED: Mutex<bool> = Mutex::new(false);
    let mut is_updated = IS_UPDATED.lock().unwrap_or_else(PoisonError::into_inner);
    let words: &[&str] = if !bootable::is_here("apt-get") {
        return;
    } else if rustix::process::geteuid().is_root() {
        &["env"]
    } else if Run::new("sudo").args(["-n", "true"]).read().is_ok() {
        &["sudo", "-n", "env"]
    } else {
        return;
    };
    let apt = |arguments: &[&str]| {
        let more = words[1..].iter().chain(&["DEBIAN_FRONTEND=noninteractive", "apt-get"]).chain(arguments);
        Run::new(words[0]).args(more).deadline(INSTALLATION).check()
    };
    let fetched = if *is_updated { Ok(()) } else { apt(&["-o", LOCK, "update", "-q"]).map(drop) };
    *is_updated |= fetched.is_ok();
    let install = [&["-o", LOCK, "install", "-q", "-y", "--no-install-recommends"], packages].concat();
    if let Err(error) = fetched.and_then(|()| apt(&install).map(drop)) {
        say!("cannot install {}: {error:#}", packages.join(" and "));
    }
}

/// Runs a script that fails where something is missing.
fn shell(what: &str, script: &str) -> Result<Result<(), String>> {
    Ok(match Run::new("sh").args(["-euc", script]).deadline(MACHINE_LOOK).read() {
        Ok(_) => Ok(()),
        // The last line that the script has written.
        Err(error) => Err(format!("{what}: {}", format!("{error:#}").lines().last().unwrap_or_default().trim())),
    })
}

/// Another apt-get may install at the same time.
pub(crate) const LOCK: &str = "DPkg::Lock::Timeout=120";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn names_are_those_of_one_need_each_and_can_stand_in_a_list() {
        assert_eq!(names().collect::<BTreeSet<_>>().len(), ALL.len());
        assert!(names().all(|name| !name.contains(',') && name.trim() == name));
        assert!(names().all(|name| find(name).is_some_and(|need| need.name == name)));
        assert!(find("luck").is_none());
    }

    #[test]
    fn a_machine_is_looked_at_once() {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let context = Context::discover().unwrap();
        let need = Need::new("luck", &[("sh", "dash")], |_| {
            LOOKS.fetch_add(1, Ordering::Relaxed);
            Ok(Err("there is none".into()))
        });
        assert_eq!(need.missing(&context).unwrap(), Some("there is none"));
        assert_eq!(need.missing(&context).unwrap(), Some("there is none"));
        assert_eq!(LOOKS.load(Ordering::Relaxed), 1);
        assert_eq!(Need::program("shell", &[("sh", "dash")]).missing(&context).unwrap(), None);
        let broken = Need::new("luck", &[], |_| Err(anyhow!("the index does not answer")));
        for _ in 0..2 {
            let error = broken.missing(&context).unwrap_err().to_string();
            assert_eq!(error, "cannot get luck: the index does not answer");
        }
    }

    #[test]
    fn a_script_that_fails_gives_its_last_line() {
        assert_eq!(shell("luck is missing", "true").unwrap(), Ok(()));
        let why = shell("luck is missing", "echo first >&2\necho not today >&2\nfalse").unwrap().unwrap_err();
        assert_eq!(why, "luck is missing: not today");
    }
}
