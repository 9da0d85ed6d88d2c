use std::fs;
use std::path::PathBuf;

use indoc::indoc;

use super::*;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let path = std::env::temp_dir().join(format!("skyward-python-{}-{name}", std::process::id()));
        for (file, text) in files {
            let at = path.join(file);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }
        Self(path)
    }

    fn read(&self, python: &str, main: Option<&str>) -> Result<Payload, Finding> {
        Payload::read(&self.0, python, main)
    }

    fn refused(&self, python: &str, main: Option<&str>) -> (Kind, String) {
        let found = self.read(python, main).unwrap_err();
        (found.kind(), found.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn function(payload: &Payload, name: &str) -> Function {
    match payload.entry(name, false) {
        Ok(Entry::Function { function, .. }) => *function,
        Ok(Entry::Unknown) => panic!("`{name}` is not known"),
        Err(found) => panic!("{found}"),
    }
}

fn package(name: &str) -> Folder {
    Folder::new(
        name,
        &[
            (
                "payloads/trainer/__init__.py",
                indoc! {b"
                    from .train import run as train
                    from trainer.deep import x, numpy
                "},
            ),
            ("payloads/trainer/train.py", b"from deep.leaf import run\n"),
            (
                "payloads/trainer/deep/__init__.py",
                indoc! {b"
                    import numpy
                    x = 1
                "},
            ),
            (
                "payloads/trainer/deep/leaf.py",
                indoc! {b"
                    def run(a): pass
                    async def slow(): pass
                "},
            ),
            ("payloads/trainer/__pycache__/train.py", b"not python"),
            ("payloads/trainer/notes.txt", b""),
            ("payloads/train.py", b"def train(a): pass\n"),
        ],
    )
}

#[test]
fn a_file_is_read() {
    let folder = package("file");
    for (python, path) in [
        ("payloads/train.py", "payloads/train.py"),
        ("payloads/../payloads/./train.py", "payloads/train.py"),
        ("payloads/trainer/../../payloads/train.py", "payloads/train.py"),
    ] {
        let payload = folder.read(python, None).unwrap();
        assert_eq!(payload.main().path(), path);
        assert_eq!(payload.files()[0].source_path(), python);
    }
}

#[test]
fn a_folder_is_read_whole_and_entries_are_followed() {
    let folder = package("folder");
    let payload = folder.read("payloads/trainer", None).unwrap();
    let paths: Vec<_> = payload.files().iter().map(File::path).collect();
    assert_eq!(paths, ["trainer/__init__.py", "trainer/deep/__init__.py", "trainer/deep/leaf.py", "trainer/train.py"]);
    assert_eq!(payload.files()[2].source_path(), "payloads/trainer/deep/leaf.py");
    assert_eq!(payload.main().path(), "trainer/__init__.py");
    assert_eq!(function(&payload, "train").location(), "trainer/deep/leaf.py:1:5");

    let error = payload.entry("x", false).unwrap_err();
    assert!(error.to_string().contains("assigned (trainer/deep/__init__.py:2:1)"), "{error}");
    assert!(error.to_string().contains("or add the option `unchecked`"), "{error}");
    assert!(matches!(payload.entry("x", true), Ok(Entry::Unknown)));
    let error = payload.entry("numpy", false).unwrap_err();
    assert!(error.to_string().contains("a module (trainer/deep/__init__.py:1:1)"), "{error}");

    let payload = folder.read("payloads/trainer/", Some("deep/leaf.py")).unwrap();
    assert_eq!(payload.main().path(), "trainer/deep/leaf.py");
    assert_eq!(payload.files()[0].source_path(), "payloads/trainer/__init__.py");
    assert!(function(&payload, "slow").is_async);
}

#[test]
fn an_entry_may_come_from_an_import_of_everything() {
    let folder = Folder::new(
        "star",
        &[
            (
                "p/__init__.py",
                indoc! {b"
                    from .impl import *
                    from numpy.random import *

                    def other(b): pass
                "},
            ),
            (
                "p/impl.py",
                indoc! {b"
                    def train(a): pass
                    def other(c): pass
                "},
            ),
            (
                "p/late.py",
                indoc! {b"
                    def train(b): pass
                    from .impl import *
                "},
            ),
            ("one.py", b"from .impl import *\n"),
            ("none.py", b"import x\n"),
        ],
    );
    let payload = folder.read("p", None).unwrap();
    assert_eq!(function(&payload, "train").location(), "p/impl.py:1:5");
    assert_eq!(function(&payload, "other").location(), "p/__init__.py:4:5", "the last one holds");
    assert!(matches!(payload.entry("uniform", false), Ok(Entry::Unknown)), "it may be in numpy");
    let payload = folder.read("p", Some("late.py")).unwrap();
    assert_eq!(function(&payload, "train").location(), "p/impl.py:1:5");
    assert!(payload.entry("trian", false).is_err(), "it is in neither");
    let payload = folder.read("one.py", None).unwrap();
    assert!(matches!(payload.entry("train", false), Ok(Entry::Unknown)));
    let payload = folder.read("none.py", None).unwrap();
    assert!(payload.entry("train", true).is_err());
}

#[test]
fn files_that_import_everything_of_each_other_are_read_once_for_a_name() {
    let stars: String = (0..12).map(|file| format!("from .m{file} import *\n")).collect();
    let mut files: Vec<(String, String)> = (0..12).map(|file| (format!("p/m{file}.py"), stars.clone())).collect();
    files[7].1.push_str("def train(a): pass\n");
    let files: Vec<_> = files.iter().map(|(path, text)| (&**path, text.as_bytes())).collect();
    let payload = Folder::new("circle", &files).read("p", Some("m0.py")).unwrap();
    assert_eq!(function(&payload, "train").location(), "p/m7.py:13:5");
    assert!(payload.entry("test", true).is_err(), "none of them has it");
}

#[test]
fn imports_that_lead_in_a_circle_have_an_end() {
    let folder = Folder::new(
        "loop",
        &[("p/a.py", b"from .b import f\nfrom .a import g as h, h as g\n"), ("p/b.py", b"from .a import f\n")],
    );
    let payload = folder.read("p", Some("a.py")).unwrap();
    for name in ["f", "g", "h"] {
        let error = payload.entry(name, false).unwrap_err();
        assert!(error.to_string().contains("imported from elsewhere"), "{error}");
    }
}

#[test]
fn files_of_many_functions_are_read_once_for_all_of_them() {
    let mut text = "import skyward as sky\nfrom typing import Optional\n".to_owned();
    for number in 0..10_000 {
        text.push_str(&format!("@sky.compute\ndef f{number}(a: Optional[int], /): pass\nfrom m{number} import *\n"));
    }
    let found = Payload::from_text("a.py", text).entry_findings();
    assert!(found[0].message().contains("`f0` requires `a`"), "{}", found[0]);
}

#[test]
fn what_runs_in_a_program_alone_binds_no_entry() {
    let folder = Folder::new(
        "program",
        &[(
            "main.py",
            indoc! {b"
                def train(a): pass
                if __name__ == '__main__':
                    train = train(1)
                    def helper(): pass
            "},
        )],
    );
    let payload = folder.read("main.py", None).unwrap();
    assert_eq!(function(&payload, "train").location(), "main.py:1:5");
    let error = payload.entry("helper", false).unwrap_err();
    assert!(error.to_string().contains("it has `train`:"), "{error}");
}

#[test]
fn the_metadata_of_the_main_file_says_which_python_all_are_for() {
    let folder = Folder::new(
        "version",
        &[
            (
                "p/__init__.py",
                indoc! {b"
                    # /// script
                    # requires-python = '>=3.11'
                    # ///
                    from .a import f
                "},
            ),
            (
                "p/a.py",
                indoc! {b"
                    type A = int
                    try:
                        pass
                    except* ValueError:
                        pass
                "},
            ),
        ],
    );
    let errors = folder.read("p", None).unwrap().findings();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!(
        errors[0].to_string(),
        "p/a.py:1:1: cannot use `type` alias statement before Python 3.12\n1 | type A = int\n  | ^^^^\n\
         `requires-python = \">=3.11\"` (p/__init__.py:2) allows Python 3.11: write it for 3.11, or raise that to \">=3.12\""
    );
    let errors = folder.read("p", Some("a.py")).unwrap().findings();
    assert_eq!(errors.len(), 2, "nodes may have 3.10: {errors:#?}");
}

#[test]
fn a_missing_entry_lists_the_functions() {
    let folder = package("entry");
    let payload = folder.read("payloads/train.py", None).unwrap();
    let error = payload.entry("tran", false).unwrap_err();
    assert_eq!(error.kind(), Kind::Entry);
    assert!(error.to_string().contains("did you mean `train`?"), "{error}");
}

#[test]
fn a_missing_file_lists_what_is_there() {
    let folder = package("missing");
    let (kind, message) = folder.refused("payloads/trian.py", None);
    assert_eq!(kind, Kind::File);
    assert!(message.contains("did you mean `payloads/train.py`?"), "{message}");
    assert!(message.contains("`payloads` holds `train.py` and `trainer/`"), "{message}");
    let (_, message) = folder.refused("paylods/train.py", None);
    assert!(message.contains("did you mean `payloads/train.py`?") && message.contains("`.` holds"), "{message}");
    let (_, message) = folder.refused("payloads/trainer/deep/x/y.py", None);
    assert!(message.contains("`payloads/trainer/deep` holds `__init__.py` and `leaf.py`"), "{message}");
}

#[test]
fn paths_of_one_machine_are_refused() {
    let folder = package("absolute");
    for path in ["/etc/train.py", "~/train.py"] {
        assert!(folder.refused(path, None).1.contains("one machine only"));
    }
    assert!(folder.refused("", None).1.contains("empty"));
}

#[test]
fn the_main_file_must_be_there() {
    let folder = package("main");
    let (kind, message) = folder.refused("payloads/trainer", Some("trian.py"));
    assert_eq!(kind, Kind::Main);
    assert!(message.contains("did you mean `train.py`?"), "{message}");
    assert!(folder.refused("payloads", None).1.contains("has no `__init__.py`"));
    assert!(folder.refused("payloads/train.py", Some("x.py")).1.contains("remove `main`"));
    assert!(folder.refused("payloads/trainer/__pycache__/..", Some("x")).1.contains("no `x`"));
}

#[test]
fn findings_of_a_long_line_are_few_and_short() {
    let names: Vec<String> = (0..3000).map(|number| format!("name{number}")).collect();
    let undefined = Payload::from_text("a.py", format!("x = [{}]\n", names.join(", "))).undefined_names();
    let unknown: Vec<String> = names.iter().map(|name| format!("sky.{name}")).collect();
    let unknown = Payload::from_text("a.py", format!("import skyward as sky\nx = [{}]\n", unknown.join(", ")));
    let wrong = Payload::from_text("a.py", format!("{}\n", "x = = ; ".repeat(3000)));
    let refused = Payload::from_text("a.py", format!("{}\n", "return; ".repeat(3000)));
    for found in [undefined, unknown.findings(), wrong.findings(), refused.findings()] {
        assert_eq!(found.len(), 101);
        assert!(found[100].message().ends_with(" more that are not shown"), "{}", found[100]);
        let longest = found.iter().map(|found| found.to_string().len()).max().unwrap();
        assert!(longest < 1000, "{longest}");
    }
}

#[test]
fn files_are_read_as_python_reads_them() {
    let folder = Folder::new(
        "encodings",
        &[
            ("latin.py", b"a = 1\nb = '\xfc'\n"),
            ("mark.py", b"\xef\xbb\xbfdef f(a): return sky\n"),
            ("cookie.py", b"# coding: latin-1\ndef f(a): return '\xfc'\n"),
            ("empty/a.txt", b""),
        ],
    );
    assert!(folder.refused("latin.py", None).1.contains("first in line 2"));
    assert!(folder.refused("empty", None).1.contains("no Python file"));
    let mark = folder.read("mark.py", None).unwrap();
    assert!(mark.findings().is_empty());
    assert_eq!(function(&mark, "f").location(), "mark.py:1:5".to_owned());
    let cookie = folder.read("cookie.py", None).unwrap();
    assert_eq!(cookie.main().text(), "# coding: utf-8\ndef f(a): return 'ü'\n");
    assert!(!cookie.main().is_verbatim());
}

#[test]
fn a_file_beside_a_single_file_is_no_part_of_the_payload() {
    let folder = Folder::new(
        "beside",
        &[
            ("jobs/train.py", b"import helpers.deep as h, numpy\ndef f(): from model import Net\n"),
            ("jobs/helpers/__init__.py", b""),
            ("jobs/model.py", b"Net = 1\ndef f(): pass\n"),
            ("jobs/numpy.py", b""),
            ("jobs/random.py", b""),
            ("jobs/declared.py", b""),
            (
                "jobs/right.py",
                indoc! {b"
                    # /// script
                    # dependencies = ['declared[all]>=2']
                    # ///
                    import declared, random, numpy, right, elsewhere
                    try:
                        import helpers
                    except ImportError:
                        helpers = None
                    if __name__ == '__main__':
                        import model
                "},
            ),
        ],
    );
    let found: Vec<_> =
        folder.read("jobs/train.py", None).unwrap().findings().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("jobs/train.py:1:8: `helpers` is a file or folder beside"), "{}", found[0]);
    assert!(
        found[1].contains("`model`") && found[1].contains("`python = \"jobs\", main = \"train.py\"`"),
        "{}",
        found[1]
    );
    assert_eq!(folder.read("jobs/right.py", None).unwrap().findings(), []);
    assert_eq!(folder.read("jobs", Some("train.py")).unwrap().findings(), []);
}

#[test]
fn errors_of_all_files_are_reported() {
    let folder = Folder::new(
        "errors",
        &[
            (
                "p/__init__.py",
                indoc! {b"
                    # /// script
                    # dependencies = 1
                    # ///
                    from .a import f
                "},
            ),
            ("p/a.py", b"def f(: pass\n"),
        ],
    );
    let errors = folder.read("p", None).unwrap().findings();
    assert!(errors.iter().any(|error| error.to_string().starts_with("p/a.py:1:7: ")), "{errors:#?}");
    assert!(errors.iter().any(|error| error.to_string().starts_with("p/__init__.py:2:1: ")), "{errors:#?}");
}

#[test]
fn what_lies_beside_a_payload_is_known_as_far_as_the_text_has_its_name() {
    let text = b"import importlib\ntry:\n    import helper\nexcept ImportError:\n    importlib.import_module('data.part')\ndef f():\n    import evaluate, torch\n";
    let folder = Folder::new(
        "neighbours",
        &[
            ("jobs/train.py", text),
            ("jobs/helper.py", b""),
            ("jobs/evaluate.py", b""),
            ("jobs/unnamed.py", b""),
            ("jobs/data/part.py", b""),
            ("jobs/torch/weights.bin", b""),
            ("jobs/fit/main.py", text),
            ("jobs/fit/helper.py", b""),
            ("jobs/one/main.py", text),
            ("train.py", b"import helper\n"),
        ],
    );
    let neighbours = |python: &str, main: Option<&str>| folder.read(python, main).unwrap().neighbours();
    let file = neighbours("jobs/train.py", None).unwrap();
    assert_eq!(file.modules, ["data", "evaluate", "helper"]);
    assert!(file.advice.contains("`python = \"jobs\", main = \"train.py\"`"), "{file:?}");
    for (python, main) in [("jobs/fit", "fit/main.py"), ("jobs/one", "one/main.py")] {
        let found = neighbours(python, Some("main.py")).unwrap();
        assert_eq!(found.modules, ["data", "evaluate", "helper"], "{python}");
        assert!(found.advice.contains(&format!("`python = \"jobs\", main = \"{main}\"`")), "{found:?}");
    }
    assert_eq!(neighbours("train.py", None), None);
    assert_eq!(Payload::from_text("a.py", "import helper\n").neighbours(), None);
}
