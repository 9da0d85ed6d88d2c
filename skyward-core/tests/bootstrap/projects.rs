//! What the settings of unrelated projects, of the machine, and of a payload do to an environment.

use std::path::Path;

use skyward_core::Result;
use skyward_core::bootstrap::Ready;
use skyward_core::payload::metadata::Metadata;
use skyward_core::spec::{Image, PackageIndex};

use crate::site::{Index, Site, lines_with, python, wheel};

async fn version(ready: &Ready, package: &str) -> String {
    python(ready, &format!("import importlib.metadata as m; print(m.version('{package}'))")).await
}

/// Writes files below a folder.
fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
}

#[tokio::test]
#[ignore = "needs package index"]
async fn files_of_an_unrelated_project_above_the_cache_do_not_apply() {
    let constraint = "[tool.uv]\nconstraint-dependencies = ['iniconfig<2']\n";
    let workspace = "[project]\nname = 'other'\nversion = '1'\n[tool.uv.workspace]\nmembers = ['cache/envs/.b*']\n\
                     [tool.uv.sources]\niniconfig = { url = 'https://127.0.0.1:9/iniconfig-2.0.0-py3-none-any.whl' }\n";
    let site = Site::new();
    for (node, (name, text)) in [
        ("uv.toml", "no-index = true\n"),
        ("pyproject.toml", constraint),
        ("pyproject.toml", workspace),
        ("pyproject.toml", "[tool.uv]\nexclude-newer = '2010-01-01'\n"),
        ("pip.conf", "[global]\nindex-url = http://127.0.0.1:9/simple\n"),
        (".python-version", "3.9.1\n"),
    ]
    .into_iter()
    .enumerate()
    {
        write(&site.root, &[(name, text)]);
        let ready = site.start(&another(node, ["iniconfig==2.0.0"]), node as u32).await.0;
        let ready = ready.unwrap_or_else(|error| panic!("{name}: {text}: {error}"));
        assert_eq!(version(&ready, "iniconfig").await, "2.0.0", "{name}: {text}");
        std::fs::remove_file(site.root.join(name)).unwrap();
    }
    site.end().await;
}

/// An image with these packages and with an environment of its own for each number.
fn another<const N: usize>(number: usize, packages: [&str; N]) -> Image {
    Image::new().pip(packages).requires_python(format!(">=3.10,!=3.9.{number}"))
}

#[tokio::test]
#[ignore = "needs package index"]
async fn variables_for_an_unrelated_project_do_not_apply() {
    let mut site = Site::new();
    let (public, bound) = (site.root.join("public"), site.root.join("bound"));
    wheel(&public, "skyalpha", "2.0", None);
    wheel(&bound, "skyalpha", "1.0", None);
    let (public, bound) = (Index::serve(&public, ""), Index::serve(&bound, ""));
    let pyproject = "[project]\nname = 'other'\nversion = '1'\n[tool.uv]\nno-index = true\n";
    write(&site.root, &[("other/pyproject.toml", pyproject), ("pins.txt", "skyalpha==9\n")]);
    let (other, pins) = (site.root.join("other"), site.root.join("pins.txt"));
    // Each one stays set for the next.
    for (node, (name, value)) in [
        ("UV_VENV_SEED", "1"),
        ("UV_NO_SOURCES", "1"),
        ("UV_CONSTRAINT", pins.to_str().unwrap()),
        ("UV_OVERRIDE", pins.to_str().unwrap()),
        ("UV_PROJECT", other.to_str().unwrap()),
        ("UV_WORKING_DIR", other.to_str().unwrap()),
        ("UV_PYTHON", "3.9"),
    ]
    .into_iter()
    .enumerate()
    {
        site = site.with_env(name, value);
        let image = another(node, ["skyalpha"])
            .index(PackageIndex::new("public", public.url()))
            .index(PackageIndex::new("bound", bound.url()).only(["skyalpha"]));
        let (ready, events) = site.start(&image, node as u32).await;
        let ready = ready.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(version(&ready, "skyalpha").await, "1.0", "{name}");
        let pip = python(&ready, "import importlib.util as u; print(u.find_spec('pip'))").await;
        assert_eq!(pip, "None", "{name}");
        assert_eq!(lines_with(&events, name), 1, "{events:?}");
    }
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn another_setting_of_the_machine_makes_another_environment() {
    let mut site = Site::new();
    for (folder, version) in [("a", "1.0"), ("b", "2.0"), ("c", "3.0")] {
        wheel(&site.root.join(folder), "skyalpha", version, None);
    }
    let links = |site: &Site, folder: &str| site.root.join(folder).join("simple/skyalpha").display().to_string();
    let image = Image::new().pip(["skyalpha"]);
    site = site.with_env("UV_FIND_LINKS", "");
    for (node, (folder, wanted)) in [("a", "1.0"), ("b", "2.0"), ("a", "1.0")].into_iter().enumerate() {
        let folder = links(&site, folder);
        site = site.with_env("UV_FIND_LINKS", &folder);
        let ready = site.start(&image, node as u32).await.0.unwrap();
        assert_eq!(version(&ready, "skyalpha").await, wanted);
    }
    let folder = links(&site, "c");
    write(&site.root, &[("config/uv/uv.toml", &format!("find-links = ['{folder}']\n"))]);
    let config = site.root.join("config").display().to_string();
    site = site.with_env("UV_FIND_LINKS", "").with_env("XDG_CONFIG_HOME", &config);
    let ready = site.start(&image, 3).await.0.unwrap();
    assert_eq!(version(&ready, "skyalpha").await, "3.0", "the user's own file of uv applies");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_variable_that_makes_uv_ignore_the_image_is_named() {
    let image = Image::new().index(PackageIndex::new("other", "http://127.0.0.1:9/simple"));
    for name in ["UV_NO_CONFIG", "UV_CONFIG_FILE"] {
        let site = Site::new();
        write(&site.root, &[("uv.toml", "")]);
        let file = site.root.join("uv.toml").display().to_string();
        let site = site.with_env(name, if name == "UV_CONFIG_FILE" { &file } else { "1" });
        let error = site.fails(&image).await;
        assert!(error.message().contains(&format!("the machine's variable {name} makes uv ignore")), "{error}");
        site.start(&Image::new().pip(["iniconfig"]), 1).await.0.unwrap();
        site.end().await;
    }
}

/// An image with a payload whose metadata is this TOML.
fn of_payload(toml: &str, image: Image) -> Result<Image> {
    let lines: String = toml.lines().map(|line| format!("# {line}\n")).collect();
    Metadata::read(&format!("# /// script\n{lines}# ///\n"))?.merge_into(image)
}

#[tokio::test]
#[ignore = "needs package index"]
async fn settings_of_uv_in_a_payload_decide_what_is_installed() {
    let site = Site::new();
    let (public, own, links) = (site.root.join("public"), site.root.join("own"), site.root.join("links"));
    for (folder, name, version, needs) in [
        (&public, "skyalpha", "2.0", None),
        (&own, "skyalpha", "1.0", None),
        (&public, "skybeta", "1.0", Some("skygamma")),
        (&public, "skygamma", "2.0", None),
        (&links, "skygamma", "1.0", None),
    ] {
        wheel(folder, name, version, needs);
    }
    let (public, own) = (Index::serve(&public, ""), Index::serve(&own, ""));
    let links = format!("file://{}", links.join("simple/skygamma").display());
    let index = format!("[[tool.uv.index]]\nname = 'public'\nurl = '{}'\n", public.url());
    let bound = format!("[[tool.uv.index]]\nname = 'own'\nurl = '{}'\nexplicit = true\n", own.url());
    let wheel = format!("{}/skyalpha/skyalpha-1.0-py3-none-any.whl", own.url());
    let at = |settings: &str, tables: &str| {
        format!("dependencies = ['skyalpha', 'skybeta']\n[tool.uv]\n{settings}\n{index}{tables}")
    };
    for (node, (payload, alpha, gamma)) in [
        (at("", ""), "2.0", "2.0"),
        (at("", &format!("{bound}[tool.uv.sources]\nskyalpha = {{ index = 'own' }}\n")), "1.0", "2.0"),
        (at("", &format!("[tool.uv.sources]\nskyalpha = {{ url = '{wheel}' }}\n")), "1.0", "2.0"),
        (at(&format!("find-links = ['{links}']\nconstraint-dependencies = ['skygamma<2']"), ""), "2.0", "1.0"),
        (at(&format!("find-links = ['{links}']\noverride-dependencies = ['skygamma==1.0']"), ""), "2.0", "1.0"),
        (at(&format!("find-links = ['{links}']\nresolution = 'lowest'"), ""), "2.0", "1.0"),
    ]
    .into_iter()
    .enumerate()
    {
        let image = of_payload(&payload, Image::new()).unwrap();
        let ready = site.start(&image, node as u32).await.0.unwrap_or_else(|error| panic!("{payload}: {error}"));
        assert_eq!(version(&ready, "skyalpha").await, alpha, "{payload}");
        assert_eq!(version(&ready, "skygamma").await, gamma, "{payload}");
    }
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_date_in_a_payload_holds_for_its_packages_and_a_setting_that_uv_cannot_read_is_no_warning() {
    let site = Site::new();
    let image = of_payload("dependencies = ['iniconfig']\n[tool.uv]\nexclude-newer = '2021-06-01'\n", Image::new());
    let ready = site.start(&image.unwrap(), 0).await.0.unwrap();
    assert_eq!(version(&ready, "iniconfig").await, "1.1.1");
    for setting in ["exclude-newer = 3", "constraint-dependencies = ['a b']", "resolution = 'oldest'"] {
        let image = of_payload(&format!("dependencies = ['iniconfig']\n[tool.uv]\n{setting}\n"), Image::new()).unwrap();
        let error = site.fails(&image).await;
        assert!(error.message().contains("cannot read `[tool.uv]` of a payload"), "{setting}: {error}");
    }
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn the_default_index_of_a_payload_comes_before_that_of_pip() {
    let site = Site::new();
    site.start(&Image::new(), 0).await.0.unwrap();
    let index = ["UV_DEFAULT_INDEX", "PIP_INDEX_URL"].iter().find_map(|name| std::env::var(name).ok());
    let index = index.unwrap_or_else(|| "https://pypi.org/simple".into());
    let payload = format!("dependencies = ['iniconfig==2.0.0']\n[tool.uv]\nindex-url = '{index}'\n");
    let cache = site.root.join("uv");
    let site = site.with_env("UV_CACHE_DIR", cache.to_str().unwrap()).with_env("UV_DEFAULT_INDEX", "");
    let site = site.with_env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let ready = site.start(&of_payload(&payload, Image::new()).unwrap(), 1).await.0.unwrap();
    assert_eq!(version(&ready, "iniconfig").await, "2.0.0");
    let error = site.fails(&Image::new().pip(["iniconfig==2.0.0"])).await;
    assert!(error.message().contains("127.0.0.1 cannot be reached"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_requirements_file_is_read_by_uv_with_the_files_that_it_names() {
    let site = Site::new();
    let index = site.root.join("index");
    wheel(&index, "skyalpha", "1.0", None);
    wheel(&index, "skybeta", "1.0", Some("skygamma"));
    let (old, new) = (site.root.join("old"), site.root.join("new"));
    wheel(&old, "skygamma", "1.0", None);
    wheel(&new, "skygamma", "2.0", None);
    let index = Index::serve(&index, "");
    let links = |folder: &Path| format!("--find-links file://{}\n", folder.join("simple/skygamma").display());
    let main = format!(
        "# \u{e9}\n--extra-index-url {} # of the test\n{}{}-r sub/beta.txt # why\n-c '../limits of it.txt'\n",
        index.url(),
        links(&old),
        links(&new),
    );
    let wide: Vec<u8> = format!("\u{feff}{main}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    write(
        &site.root,
        &[
            ("in/sub/beta.txt", "\u{feff}skybeta\n-r ../alpha.txt"),
            ("in/alpha.txt", "skyalpha==1.0 ; python_version > '3' # why"),
        ],
    );
    write(&site.root, &[("limits of it.txt", "skygamma<2\n")]);
    for (node, text) in [main.into_bytes(), wide].into_iter().enumerate() {
        let path = site.root.join(format!("in/requirements {node}.txt"));
        std::fs::write(&path, text).unwrap();
        let ready = site.start(&Image::new().requirements(&path), node as u32).await.0.unwrap();
        for package in ["skyalpha", "skybeta", "skygamma"] {
            assert_eq!(version(&ready, package).await, "1.0", "{package}");
        }
    }
    let wrong = site.root.join("wrong.txt");
    std::fs::write(
        &wrong,
        format!("--extra-index-url {}\nskyalpha==1.0 --hash=sha256:{}\n", index.url(), "0".repeat(64)),
    )
    .unwrap();
    let error = site.fails(&Image::new().requirements(&wrong)).await;
    assert!(error.message().contains("hash"), "{error}");
    site.end().await;
}
