use indoc::indoc;

use super::*;
use crate::error::ErrorKind;
use crate::spec::PackageIndex;

/// An image with a payload that has these settings.
fn with(uv: &str, image: Image) -> Result<Image> {
    let settings = UvSettings::new(toml::from_str(&uv.replace("tool.uv.", "")).unwrap());
    let mut image = image.pip(["a", "torch"]);
    image.uv.merge(&settings)?;
    image.validate()?;
    Ok(image)
}

fn refusal(uv: &str, image: Image) -> String {
    let error = with(uv, image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{uv}");
    assert!(error.hint().is_some(), "{uv}");
    assert!(!format!("{error:#}").contains("hunter2"), "{uv}");
    error.message().to_owned()
}

#[test]
fn settings_that_uv_takes_from_a_script_are_accepted() {
    for uv in [
        "",
        "exclude-newer = \"2024-01-01\"",
        "constraint-dependencies = [\"b<2\"]\noverride-dependencies = [\"c==1\"]",
        "index-url = \"https://mirror.example/simple\"",
        "find-links = [\"https://mirror.example/wheels\"]\nno-index = true",
        "sources = { a = { git = \"https://git.example/a\" }, Torch = [{ url = \"https://x.example/t.whl\" }] }",
        "[[tool.uv.index]]\nname = \"x\"\nurl = \"https://x\"\nexplicit = true\n[tool.uv.sources]\na = { index = \"x\" }",
    ] {
        with(uv, Image::new()).unwrap();
    }
    for key in TAKEN {
        check_key(key).unwrap();
    }
}

#[test]
fn a_setting_that_cannot_be_applied_is_refused_by_its_name() {
    for (uv, words) in [
        ("cache-dir = \"./cache\"", "`cache-dir` in `[tool.uv]` of a payload cannot be applied: it names a folder"),
        ("no-sources = true", "`no-sources`"),
        ("pip = { no-deps = true }", "`pip`"),
        (
            "dev-dependencies = []",
            "`dev-dependencies` in `[tool.uv]` of a payload cannot be applied: it belongs to a project",
        ),
        ("workspace = { members = [] }", "`workspace`"),
        ("publish-url = \"https://x\"", "`publish-url`"),
        (
            "exclude-newr = \"2024-01-01\"",
            "`exclude-newr` in `[tool.uv]` of a payload cannot be applied: Skyward knows no",
        ),
        ("find-links = [\"./wheels\"]", "`find-links` in `[tool.uv]` names `./wheels`, which is a folder of this host"),
        ("index-url = \"/srv/simple\"", "names `/srv/simple`"),
        ("[[tool.uv.index]]\nurl = \"wheels\"\nformat = \"flat\"", "names `wheels`"),
        ("sources = { a = { path = \"../a\" } }", "`sources.a` in `[tool.uv]` of a payload has `path`"),
        ("sources = { a = { workspace = true } }", "has `workspace`"),
        ("sources = { a = [{ path = \"a\", marker = \"x\" }] }", "has `path`"),
        ("sources = { a = { index = \"none\" } }", "names the index `none`"),
        ("sources = { b = { git = \"https://git.example/b\" } }", "no requirement names `b`"),
        ("index-url = \"https://me:hunter2@x/simple\"", "`index-url` in `[tool.uv]` has a user or password"),
        ("[[tool.uv.index]]\nname = \"x\"\nurl = \"https://me:hunter2@x\"", "`index` in `[tool.uv]` has a user"),
        ("sources = { a = { git = \"https://hunter2@x/a\" } }", "`sources` in `[tool.uv]` has a user"),
    ] {
        let message = refusal(uv, Image::new());
        assert!(message.contains(words), "{uv}: {message}");
    }
    for key in REFUSED.iter().flat_map(|(keys, ..)| *keys) {
        assert!(refusal(&format!("{key} = true"), Image::new()).contains(&format!("`{key}`")), "{key}");
        assert!(!TAKEN.contains(key), "{key}");
    }
}

#[test]
fn a_setting_that_contradicts_the_image_is_refused() {
    let cpu = || Image::new().index(PackageIndex::new("cpu", "https://torch.example").only(["Torch"]));
    for (uv, image, words) in [
        ("sources = { torch = { git = \"https://git.example/t\" } }", cpu(), "another source than the index `cpu`"),
        ("[[tool.uv.index]]\nname = \"cpu\"\nurl = \"https://other\"", cpu(), "different indexes `cpu`"),
        (
            "index-url = \"https://a\"",
            Image::new().default_index("https://b"),
            "the image has the default index https://b",
        ),
        (
            "[[tool.uv.index]]\nurl = \"https://a\"\ndefault = true",
            Image::new().default_index("https://b"),
            "the image has the default index",
        ),
        ("exclude-newer = \"2024-01-01\"", Image::new().python("/usr/bin/python3"), "the interpreter /usr/bin/python3"),
    ] {
        let message = refusal(uv, image);
        assert!(message.contains(words), "{uv}: {message}");
    }
    with("sources = { torch = { index = \"cpu\" } }", cpu()).unwrap();
}

#[test]
fn settings_of_payloads_are_joined_and_a_disagreement_is_named() {
    let first = indoc! {r#"
        exclude-newer = "2024-01-01"
        [tool.uv.sources]
        a = { git = "https://git.example/a" }
    "#};
    let image = with(first, Image::new()).unwrap();
    let same = with(first, image.clone()).unwrap();
    assert_eq!(same.uv, image.uv);
    let more =
        with("prerelease = \"allow\"\nsources = { torch = { url = \"https://x/t.whl\" } }", image.clone()).unwrap();
    assert_eq!(more.uv.sources().map(|(package, _)| package).collect::<Vec<_>>(), ["a", "torch"]);
    assert_eq!(more.uv.table().keys().collect::<Vec<_>>(), ["exclude-newer", "prerelease", "sources"]);
    for (uv, words) in [
        (
            "exclude-newer = \"2025-01-01\"",
            "disagree about `exclude-newer` in `[tool.uv]`: \"2024-01-01\" and \"2025-01-01\"",
        ),
        ("sources = { a = { git = \"https://git.example/b\" } }", "disagree about `sources.a`"),
        (
            "sources = { a = { git = \"https://hunter2@git.example/b\" } }",
            "disagree about `sources.a` in `[tool.uv]`: … and …",
        ),
    ] {
        let message = refusal(uv, image.clone());
        assert!(message.contains(words), "{uv}: {message}");
    }
}

#[test]
fn settings_decide_what_is_installed_and_outlive_a_file() {
    let image = with("exclude-newer = \"2024-01-01\"", Image::new()).unwrap();
    let other = with("exclude-newer = \"2025-01-01\"", Image::new()).unwrap();
    let none = with("", Image::new()).unwrap();
    let hashes = [&image, &other, &none].map(|image| image.content_hash(None));
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2], "{hashes:?}");
    let text = serde_json::to_string(&image).unwrap();
    assert_eq!(serde_json::from_str::<Image>(&text).unwrap(), image);
}

#[test]
fn indexes_of_a_payload_may_have_credentials_of_the_image() {
    let uv = "[[tool.uv.index]]\nname = \"own\"\nurl = \"https://own.example\"";
    with(uv, Image::new()).unwrap().credentials("own", "me", "hunter2").validate().unwrap();
}
