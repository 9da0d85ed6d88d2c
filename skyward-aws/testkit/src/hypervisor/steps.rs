//! The steps of cloud-init for a cloud-config, in order, as commands that run as root on the
//! machine. No I/O.

use anyhow::Result;

use super::user_data::{CloudConfig, Words, WriteFile};

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// What the console shows.
    pub(crate) what: String,
    pub(crate) program: Vec<String>,
    pub(crate) input: Vec<u8>,
}

impl Step {
    fn new(what: impl Into<String>, program: &[&str], input: impl Into<Vec<u8>>) -> Self {
        let program = program.iter().map(|word| (*word).to_owned()).collect();
        Self { what: what.into(), program, input: input.into() }
    }

    fn run(module: &str, words: &Words) -> Self {
        let program = match words {
            Words::Line(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
            Words::List(list) => list.clone(),
        };
        Self { what: format!("{module} {}", program.join(" ")), program, input: Vec::new() }
    }

    fn write(file: &WriteFile) -> Result<Self> {
        let (mode, owner) = (file.permissions.as_deref(), file.owner.as_deref());
        let words = ["/bin/sh", "-c", WRITE, "sh", &file.path, mode.unwrap_or("0644"), owner.unwrap_or("root:root")];
        Ok(Self::new(format!("write_files {}", file.path), &words, file.bytes()?))
    }
}

/// The network stage: all that comes before the SSH server is up. Files are written before the user
/// is there, as on a machine of EC2.
pub(crate) fn network(config: &CloudConfig, user: &str, key_pair: Option<&str>) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = config.bootcmd.iter().map(|words| Step::run("bootcmd", words)).collect();
    for file in config.write_files.iter().filter(|file| !file.defer) {
        steps.push(Step::write(file)?);
    }
    steps.push(Step::new(format!("users {user}"), &["/bin/sh", "-c", USER, "sh", user], ""));
    if config.ssh_deletekeys.unwrap_or(true) {
        steps.push(Step::new("ssh_deletekeys", &["/bin/sh", "-c", "rm -f /etc/ssh/ssh_host_*"], ""));
    }
    match &config.ssh_keys {
        Some(keys) => {
            steps.push(install("/etc/ssh/ssh_host_ed25519_key", "0600", "root", &keys.ed25519_private));
            steps.push(install("/etc/ssh/ssh_host_ed25519_key.pub", "0644", "root", &keys.ed25519_public));
        }
        None => steps.push(Step::new("ssh_genkeytypes ed25519", &["/bin/sh", "-c", GENERATE], "")),
    }
    let mut keys = config.ssh_authorized_keys.clone();
    keys.extend(key_pair.map(str::to_owned));
    let keys = keys.iter().map(|key| format!("{}\n", key.trim())).collect::<String>();
    steps.push(install(&format!("/home/{user}/.ssh/authorized_keys"), "0600", user, &keys));
    if config.disable_root == Some(false) {
        steps.push(install("/root/.ssh/authorized_keys", "0600", "root", &keys));
    }
    if config.package_update == Some(true) {
        let words = ["/bin/sh", "-c", "echo 'there is no network; the list of packages stays as it is'"];
        steps.push(Step::new("package_update", &words, ""));
    }
    Ok(steps)
}

/// The final stage: all that comes after the SSH server is up.
pub(crate) fn last(config: &CloudConfig) -> Result<Vec<Step>> {
    let deferred = config.write_files.iter().filter(|file| file.defer).map(Step::write);
    deferred.chain(config.runcmd.iter().map(|words| Ok(Step::run("runcmd", words)))).collect()
}

/// A file of SSH, in a folder that is its owner's alone if it has to be made.
fn install(path: &str, mode: &str, owner: &str, content: &str) -> Step {
    let content = format!("{}\n", content.trim_end());
    Step::new(format!("ssh {path}"), &["/bin/sh", "-c", INSTALL, "sh", path, mode, owner], content)
}

const WRITE: &str = r#"set -e; umask 022; mkdir -p "$(dirname "$1")"; cat >"$1"; chmod "$2" "$1"; chown "$3" "$1""#;
const INSTALL: &str = r#"set -e; folder=$(dirname "$1"); [ -d "$folder" ] || install -d -m 0700 -o "$3" -g "$3" "$folder"
install -m "$2" -o "$3" -g "$3" /dev/stdin "$1""#;
const GENERATE: &str =
    "[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key";
/// A password hash that matches no password. It is not the mark of a locked password, because
/// OpenSSH without PAM refuses such accounts.
const USER: &str = r#"set -e
useradd --no-create-home --home-dir "/home/$1" --uid 1000 --user-group --shell /bin/bash --password '*' "$1"
cp -r --preserve=mode /etc/skel/. "/home/$1/"
find "/home/$1" -path "/home/$1/.cache" -prune -o -exec chown "$1:$1" {} +
chmod 0750 "/home/$1"
umask 0337
echo "$1 ALL=(ALL) NOPASSWD:ALL" >/etc/sudoers.d/90-cloud-init-users"#;

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn config(json: &str) -> CloudConfig {
        let text = format!("#cloud-config\n{json}");
        CloudConfig::read(&base64::engine::general_purpose::STANDARD.encode(text)).unwrap()
    }

    #[test]
    fn the_order_is_that_of_cloud_init() {
        let config = config(
            r#"{"runcmd": ["last"], "bootcmd": [["first", "x y"]], "ssh_authorized_keys": ["ssh-ed25519 A"],
                "write_files": [{"path": "/late", "defer": true}, {"path": "/early", "permissions": "0600"}]}"#,
        );
        let steps = network(&config, "ubuntu", Some("ssh-ed25519 B")).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
        let wanted = ["bootcmd first x y", "write_files /early", "users ubuntu", "ssh_deletekeys"];
        assert_eq!(names[..4], wanted);
        assert_eq!(names[5..], ["ssh /home/ubuntu/.ssh/authorized_keys"]);
        assert_eq!(steps[0].program, ["first", "x y"]);
        assert_eq!(steps[5].input, b"ssh-ed25519 A\nssh-ed25519 B\n");
        let names: Vec<String> = last(&config).unwrap().into_iter().map(|step| step.what).collect();
        assert_eq!(names, ["write_files /late", "runcmd /bin/sh -c last"]);
    }

    #[test]
    fn the_host_key_is_the_one_that_was_given() {
        let config = config(r#"{"ssh_keys": {"ed25519_private": "P", "ed25519_public": "Q"}}"#);
        let steps = network(&config, "ubuntu", None).unwrap();
        let key = steps.iter().find(|step| step.what == "ssh /etc/ssh/ssh_host_ed25519_key").unwrap();
        assert_eq!(key.input.as_slice(), &b"P\n"[..]);
        assert_eq!(key.program[5].as_str(), "0600");
        assert!(!steps.iter().any(|step| step.what.starts_with("ssh_genkeytypes")));
    }
}
