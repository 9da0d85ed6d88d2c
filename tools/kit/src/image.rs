//! Images for nodes that are containers: a Debian root that the host makes and the engine imports,
//! because there may be no registry to pull one from.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::needs::LOCK;
use crate::process::Run;
use crate::timing::{ENGINE_ANSWER, IMAGE_BUILD};

/// The images, which the engine has.
#[derive(Debug)]
pub struct Images {
    /// With Python.
    pub node: String,
    /// Without Python: a shell and the usual tools.
    pub bare: String,
}

impl Images {
    /// Makes the images, unless the engine has them. The inner error is the reason why there can be
    /// none here.
    ///
    /// # Errors
    ///
    /// A command that makes an image fails.
    pub fn ensure(context: &Context) -> Result<Result<Self, String>> {
        if let Some(reason) = no_engine() {
            return Ok(Err(reason));
        }
        let host = Host::read();
        let images = Self { node: host.tag("skyward-node"), bare: host.tag("skyward-bare") };
        fs::create_dir_all(&context.cache)
            .with_context(|| format!("cannot make the folder {}", context.cache.display()))?;
        let lock = File::create(context.cache.join("image.lock"))?;
        lock.lock().context("cannot lock the making of images")?;
        if is_there(&images.node) && is_there(&images.bare) {
            return Ok(Ok(images));
        }
        if !rustix::process::geteuid().is_root() {
            return Ok(Err("the images are made from a Debian root, which needs the superuser".into()));
        }
        if let Err(error) = get_debootstrap() {
            return Ok(Err(format!("there is no debootstrap: {error:#}")));
        }
        // On the disk of the cache: a folder for temporary files may not allow device files.
        let root = context.cache.join("image-root");
        remove(&root)?;
        let made = host.make(&root, &images);
        remove(&root)?;
        made.map(|()| Ok(images))
    }
}

/// What of the host's configuration its containers need, to install packages as the host does.
#[derive(Hash)]
struct Host {
    mirror: Option<String>,
    /// Files for the image: the path, and the content.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Variables of the image.
    env: Vec<(String, String)>,
}

impl Host {
    fn read() -> Self {
        let bundle = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]
            .into_iter()
            .filter_map(|name| env::var_os(name).map(PathBuf::from));
        let bundle = bundle.chain([PathBuf::from(BUNDLE)]).find_map(|path| fs::read(path).ok());
        let mut files: Vec<(PathBuf, Vec<u8>)> = bundle.map(|bundle| (BUNDLE.into(), bundle)).into_iter().collect();
        // Proxies and the like; what says how the host keeps its packages is the host's own.
        for path in listed(Path::new("/etc/apt/apt.conf.d")).into_iter().chain([PathBuf::from("/etc/apt/apt.conf")]) {
            if let Ok(text) = fs::read_to_string(&path)
                && text.lines().any(|line| line.trim_start().starts_with("Acquire::"))
            {
                files.push((path, text.into_bytes()));
            }
        }
        files.extend(fs::read("/etc/pip.conf").ok().map(|text| (PathBuf::from("/etc/pip.conf"), text)));
        let mut env: Vec<_> = CERTIFICATES.iter().map(|name| ((*name).to_owned(), BUNDLE.to_owned())).collect();
        env.extend(env::vars().filter(|(name, _)| PASSED.contains(&name.to_ascii_uppercase().as_str())));
        env.sort();
        Self { mirror: mirror(), files, env }
    }

    fn tag(&self, name: &str) -> String {
        let mut hash = DefaultHasher::new();
        (RECIPE, self).hash(&mut hash);
        format!("{name}:{:016x}", hash.finish())
    }

    fn make(&self, root: &Path, images: &Images) -> Result<()> {
        let mut debootstrap =
            Run::new("debootstrap").args(["--variant=minbase", SUITE]).args([root]).deadline(IMAGE_BUILD);
        if let Some(mirror) = &self.mirror {
            debootstrap = debootstrap.args([mirror]);
        }
        debootstrap.check().context("debootstrap failed")?;
        for (path, content) in &self.files {
            let target = root.join(path.strip_prefix("/").unwrap_or(path));
            fs::create_dir_all(target.parent().unwrap_or(root))?;
            fs::write(&target, content).with_context(|| format!("cannot write {}", target.display()))?;
        }
        self.import(root, &images.bare)?;
        let install = |args: &[&str]| {
            let run = Run::new("chroot")
                .args([root])
                .args(args)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .deadline(IMAGE_BUILD);
            run.check().context("cannot install Python into the image")
        };
        install(&["apt-get", "update", "-q"])?;
        install(&[&["apt-get", "install", "-q", "-y", "--no-install-recommends"], PACKAGES].concat())?;
        // The package of certificate authorities has written its own over the host's.
        for (path, content) in &self.files {
            fs::write(root.join(path.strip_prefix("/").unwrap_or(path)), content)?;
        }
        self.import(root, &images.node)
    }

    fn import(&self, root: &Path, tag: &str) -> Result<()> {
        let changes = self.env.iter().map(|(name, value)| format!("--change 'ENV {name}=\"{value}\"'"));
        let changes = changes.collect::<Vec<_>>().join(" ").replace('$', "\\$");
        // What apt fetched is of no use in a container.
        let script = format!(
            "tar -C \"$1\" --numeric-owner --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' -c . | docker import {changes} - \"$2\""
        );
        let run = Run::new("sh").args(["-euc", script.as_str(), "sh"]).args([root]).args([tag]).deadline(IMAGE_BUILD);
        run.check().with_context(|| format!("cannot import the image {tag}"))?;
        Ok(())
    }
}

/// Why there is no engine, if there is none.
fn no_engine() -> Option<String> {
    match Run::new("docker").args(["version", "--format", "{{.Server.Version}}"]).deadline(ENGINE_ANSWER).read() {
        Ok(_) => None,
        Err(error) => {
            Some(format!("there is no Docker engine: {}", format!("{error:#}").lines().last().unwrap_or_default()))
        }
    }
}

fn is_there(image: &str) -> bool {
    Run::new("docker").args(["image", "inspect", "--format", "{{.Id}}", image]).deadline(ENGINE_ANSWER).read().is_ok()
}

fn get_debootstrap() -> Result<()> {
    if Run::new("debootstrap").args(["--version"]).read().is_ok() {
        return Ok(());
    }
    Run::new("apt-get").args(["-o", LOCK, "update", "-q"]).deadline(IMAGE_BUILD).check()?;
    Run::new("apt-get")
        .args(["-o", LOCK, "install", "-q", "-y", "debootstrap"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .deadline(IMAGE_BUILD)
        .check()?;
    Ok(())
}

/// Where a host that is Debian gets its packages.
fn mirror() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    if !release.lines().any(|line| line == "ID=debian") {
        return None;
    }
    let sources =
        listed(Path::new("/etc/apt/sources.list.d")).into_iter().chain([PathBuf::from("/etc/apt/sources.list")]);
    let texts: Vec<_> = sources.filter_map(|path| fs::read_to_string(path).ok()).collect();
    // Of both forms, `deb URL suite …` and `URIs: URL`.
    let words =
        texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let found = words
        .flat_map(str::split_whitespace)
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"));
    found.map(str::to_owned)
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn remove(root: &Path) -> Result<()> {
    // A debootstrap that was ended may have left these mounted, and what is below them is not to be
    // removed.
    for mounted in ["proc", "sys"] {
        let path = root.join(mounted);
        if path.exists() {
            let _ = Run::new("umount").args(["-l"]).args([&path]).read();
        }
    }
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", root.display())
        }
        _ => Ok(()),
    }
}

/// Changed to have the images made again.
const RECIPE: &str = "1 trixie python3 python3-venv ca-certificates";
const SUITE: &str = "trixie";
const PACKAGES: &[&str] = &["ca-certificates", "python3", "python3-venv"];
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Who reads which of them differs.
const CERTIFICATES: &[&str] = &["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// The host's variables that say where packages come from.
const PASSED: &[&str] = &[
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_DEFAULT_TIMEOUT",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];
