//! The image as a project, the form in which uv takes packages with their sources and settings.

use toml::{Table, Value};

use super::package::NEEDS;
use crate::spec::{Image, OLDEST, PackageIndex, UvSettings, normalised, requirement_name};

/// The project of an image.
#[derive(Debug)]
pub(super) struct Project {
    /// Its `pyproject.toml`.
    pub(super) text: String,
    /// The extras with the packages that are bound to an index and not listed: `extra=package`.
    pub(super) extras: Vec<String>,
    /// Whether uv has to read settings from it.
    pub(super) has_settings: bool,
    /// Whether the settings of a payload name the index for all packages.
    pub(super) has_default_index: bool,
}

impl Project {
    pub(super) fn of(image: &Image) -> Self {
        let bound: Vec<(String, &str)> = image
            .indexes
            .iter()
            .flat_map(|index| index.packages.iter().map(|package| (normalised(package), index.name.as_str())))
            .collect();
        let named: Vec<_> = image.pip.iter().filter_map(|requirement| requirement_name(requirement).ok()).collect();
        let extras: Vec<(String, &str)> = bound
            .iter()
            .enumerate()
            .filter(|(_, (package, _))| !named.contains(package))
            .map(|(at, (package, _))| (format!("bound{at}"), package.as_str()))
            .collect();
        let needs = NEEDS.iter().map(|need| (*need).to_owned());
        let requirements: Vec<Value> = image.pip.iter().cloned().chain(needs).map(Value::from).collect();
        let mut project = Table::from_iter([
            ("name".to_owned(), "skyward-image".into()),
            ("version".to_owned(), "0".into()),
            ("requires-python".to_owned(), OLDEST.into()),
            ("dependencies".to_owned(), requirements.into()),
        ]);
        if !extras.is_empty() {
            let packages = extras.iter().map(|(extra, package)| (extra.clone(), vec![*package].into()));
            project.insert("optional-dependencies".into(), packages.collect::<Table>().into());
        }
        let uv = UvSettings::new(settings(image, &bound));
        // uv takes the other indexes, and the sources, from the project itself, whatever its settings are.
        let is_of_lists = |key: &str| ["index", "sources", "workspace"].contains(&key);
        let has_settings = uv.table().keys().any(|key| !is_of_lists(key)) || uv.has_open_index();
        let tool = Table::from_iter([("uv".to_owned(), uv.table().clone().into())]);
        let text = Table::from_iter([("project".to_owned(), project.into()), ("tool".to_owned(), tool.into())]);
        let extras = extras.iter().map(|(extra, package)| format!("{extra}={package}")).collect();
        let has_default_index = image.uv.has_default_index();
        Self { text: text.to_string(), extras, has_settings, has_default_index }
    }
}

/// `[tool.uv]`: the settings of payloads, with the indexes of the image before theirs.
fn settings(image: &Image, bound: &[(String, &str)]) -> Table {
    let mut uv = image.uv.table().clone();
    // Without a workspace of its own, the settings of a project in a folder above would apply.
    uv.insert("workspace".into(), Table::new().into());
    let is_new = |name: Option<&str>| !image.indexes.iter().any(|own| Some(own.name.as_str()) == name);
    let others = image.uv.indexes().filter(|(name, _)| is_new(*name)).map(|(_, index)| index.clone());
    let indexes: Vec<Table> = image.indexes.iter().map(index).chain(others).collect();
    if !indexes.is_empty() {
        uv.insert("index".into(), indexes.into());
    }
    let own = bound.iter().map(|(package, index)| {
        (package.clone(), Table::from_iter([("index".to_owned(), Value::from(*index))]).into())
    });
    let sources: Table = own.chain(image.uv.sources().map(|(package, source)| (package, source.clone()))).collect();
    if !sources.is_empty() {
        uv.insert("sources".into(), sources.into());
    }
    if uv.contains_key("exclude-newer") {
        // The date is for the packages of the payload, and the worker may need a newer one of its own.
        let packages = uv.entry("exclude-newer-package").or_insert_with(|| Table::new().into());
        for need in NEEDS.iter().filter_map(|need| requirement_name(need).ok()) {
            if let Some(packages) = packages.as_table_mut() {
                packages.entry(need).or_insert_with(|| NEVER.into());
            }
        }
    }
    uv
}

fn index(index: &PackageIndex) -> Table {
    Table::from_iter([
        ("name".to_owned(), index.name.as_str().into()),
        ("url".to_owned(), index.url.as_str().into()),
        ("explicit".to_owned(), (!index.packages.is_empty()).into()),
    ])
}

const NEVER: &str = "9999-01-01T00:00:00Z";

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;
    use crate::payload::metadata::Metadata;

    fn parsed(image: &Image) -> Table {
        toml::from_str(&Project::of(image).text).unwrap()
    }

    fn with_header(uv: &str, image: Image) -> Image {
        let block = format!("dependencies = [\"a\", \"torch\"]\n[tool.uv]\n{uv}");
        let lines: String = block.lines().map(|line| format!("# {line}\n")).collect();
        Metadata::read(&format!("# /// script\n{lines}# ///\n")).unwrap().merge_into(image).unwrap()
    }

    fn expected(uv: &str) -> Value {
        let text = format!("{uv}\n[workspace]\n");
        Value::Table(toml::from_str(&text).unwrap())
    }

    #[test]
    fn an_image_is_a_project_whose_workspace_is_its_own() {
        let image = Image::new()
            .pip(["torch==2.9.0", "name'with\"quotes"])
            .index(PackageIndex::new("extra", "https://extra.example/simple"))
            .index(PackageIndex::new("cpu", "https://torch.example/whl").only(["torch", "Torch_Vision"]));
        let wanted: Table = toml::from_str(indoc! {r#"
            [project]
            name = "skyward-image"
            version = "0"
            requires-python = ">=3.10"
            dependencies = ["torch==2.9.0", "name'with\"quotes", "msgspec>=0.19,<1"]
            [project.optional-dependencies]
            bound1 = ["torch-vision"]
            [tool.uv.workspace]
            [[tool.uv.index]]
            name = "extra"
            url = "https://extra.example/simple"
            explicit = false
            [[tool.uv.index]]
            name = "cpu"
            url = "https://torch.example/whl"
            explicit = true
            [tool.uv.sources]
            torch = { index = "cpu" }
            torch-vision = { index = "cpu" }
        "#})
        .unwrap();
        assert_eq!(parsed(&image), wanted);
        assert_eq!(parsed(&Image::new())["tool"]["uv"], expected(""));
    }

    #[test]
    fn settings_of_a_payload_are_settings_of_the_project() {
        let uv = indoc! {r#"
            constraint-dependencies = ["b<2"]
            override-dependencies = ["c==1"]
            no-build-package = ["d"]
            resolution = "lowest"
            [[index]]
            name = "own"
            url = "https://own.example/simple"
            [sources]
            a = { git = "https://git.example/a", rev = "v1" }
            torch = [{ index = "own", marker = "sys_platform == 'linux'" }]
        "#};
        let header = uv.replace("[[index]]", "[[tool.uv.index]]").replace("[sources]", "[tool.uv.sources]");
        assert_eq!(parsed(&with_header(&header, Image::new()))["tool"]["uv"], expected(uv));
    }

    #[test]
    fn indexes_of_the_image_come_first_and_once() {
        let header = indoc! {r#"
            [[tool.uv.index]]
            name = "own"
            url = "https://own.example"
            [[tool.uv.index]]
            name = "cpu"
            url = "https://torch.example"
            explicit = true
            [tool.uv.sources]
            torch = { index = "cpu" }
        "#};
        let image = Image::new().index(PackageIndex::new("cpu", "https://torch.example").only(["torch"]));
        let uv = indoc! {r#"
            [[index]]
            name = "cpu"
            url = "https://torch.example"
            explicit = true
            [[index]]
            name = "own"
            url = "https://own.example"
            [sources]
            torch = { index = "cpu" }
        "#};
        assert_eq!(parsed(&with_header(header, image))["tool"]["uv"], expected(uv));
    }

    #[test]
    fn a_date_does_not_hold_for_what_the_worker_needs() {
        let image =
            with_header("exclude-newer = \"2023-01-01\"\nexclude-newer-package = { a = \"2024-01-01\" }", Image::new());
        let wanted = indoc! {r#"
            exclude-newer = "2023-01-01"
            exclude-newer-package = { a = "2024-01-01", msgspec = "9999-01-01T00:00:00Z" }
        "#};
        assert_eq!(parsed(&image)["tool"]["uv"], expected(wanted));
    }

    #[test]
    fn what_uv_reads_as_settings_is_known() {
        let bound = |image: Image| image.index(PackageIndex::new("cpu", "https://x.example").only(["torch"]));
        for (image, wanted) in [
            (Image::new(), false),
            (bound(Image::new()), false),
            (Image::new().index(PackageIndex::new("a", "https://a.example")), true),
            (with_header("exclude-newer = \"2024-01-01\"", Image::new()), true),
            (with_header("sources = { a = { git = \"https://git.example/a\" } }", Image::new()), false),
        ] {
            assert_eq!(Project::of(&image).has_settings, wanted, "{image:?}");
        }
    }
}
