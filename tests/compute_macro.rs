//! The output of `#[skyward::compute]` for a declaration: source, entry, lines and arguments.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use indoc::{formatdoc, indoc};
use skyward::compute::PendingCompute;
use skyward::payload::{ComputeFn, Payload, Streaming, value};

/// Any value, to check what Python receives.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
enum Any {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Any>),
}

#[skyward::compute(python = "tests/ui/payloads/train.py", payload = Train)]
fn train(epochs: u32, batch_size: u32, rate: Option<f64>, name: Option<&str>) -> BTreeMap<String, f64>;

#[skyward::compute(python = "tests/ui/payloads/../payloads/train.py", entry = "options")]
fn with_settings(name: &str, depth: Option<u32>) -> usize;

#[skyward::compute(python = "tests/ui/payloads/trainer", entry = "train")]
fn package(epochs: u32) -> u32;

#[skyward::compute]
fn inline(a: i64, b: Option<i64>) -> i64 {
    r#"
    text = """
  outdented
      indented"""
    if b is None:
        return a
    return a + b + len(text)
    "#
}
const INLINE_OPENS: u32 = line!() - 9;

#[skyward::compute]
fn at_once(values: &[f64], data: &[u8], flags: Vec<bool>) -> f64 {
    "return sum(values)"
}

#[skyward::compute]
fn counting(to: u32) -> Streaming<u32> {
    "for number in range(to):\n    yield number"
}

#[skyward::compute]
fn scaled(factor: f64, x: f64) -> Payload<f64> {
    let payload = Payload::python(
        "scaled.py",
        formatdoc! {"
            def scaled(x):
                return x * {factor:?}
        "},
        "scaled",
    );
    payload.arg("x", x)
}

#[skyward::compute]
fn failing(x: i64) {
    r##"
    # Escapes, brackets and strings over several lines move nothing.
    message = f"""{x} is wrong
      as it is"""
    values = [
        x, "#",
    ]
    raise ValueError(message)
    "##
}
const RAISES_AT: u32 = line!() - 3;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "describe", payload = Described)]
fn described(values: Vec<f64>) -> Summary;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "describe", payload = MisspeltPayload)]
fn misspelt(values: Vec<f64>) -> Option<Misspelt>;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "scores", payload = Streamed)]
fn streamed(count: u32) -> Streaming<Misspelt>;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "describe", payload = OfAnyType)]
fn of_any_type<T: serde::de::DeserializeOwned + Send + 'static>(values: Vec<f64>) -> T;

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only its fields' names are looked at")]
struct Summary {
    mean: f64,
    spread: f64,
    note: Option<String>,
}

#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "only its fields' names are looked at")]
struct Misspelt {
    mean: f64,
    #[serde(rename = "spraed")]
    spread: f64,
}

/// Clippy must not complain about arguments that Python requires.
mod wide {
    #![deny(clippy::pedantic)]

    #[skyward::compute]
    pub(super) fn many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, name: String) -> u8 {
        "return a + b + c + d + e + f + g + h + len(name)"
    }

    #[skyward::compute]
    pub(super) fn flags(a: bool, b: bool, c: bool, d: bool) -> bool {
        "return a and b and c and d"
    }
}

#[allow(clippy::unwrap_used, reason = "for tests only")]
fn arguments<T: skyward::payload::Output>(call: PendingCompute<T>) -> BTreeMap<String, Any> {
    value::decode(&call.into_task().unwrap().args).unwrap()
}

#[test]
fn a_file_is_embedded_unchanged() {
    let call = train(5, 64, None, None);
    let source = call.source();
    assert_eq!(source.entry(), "train");
    assert_eq!(source.main(), "tests/ui/payloads/train.py");
    assert_eq!(source.first_line(), 1);
    assert_eq!(source.main_text(), include_str!("ui/payloads/train.py"));
    assert_eq!(source.files().len(), 1);
    assert_eq!(with_settings("a", None).source().main(), "tests/ui/payloads/train.py");
    assert_ne!(with_settings("a", None).source().digest(), source.digest(), "the entry differs");
}

#[test]
fn a_source_is_made_once_and_known_before_any_call() {
    let first = train(1, 2, None, None);
    let second = train(3, 4, Some(0.5), None);
    assert!(std::sync::Arc::ptr_eq(first.source(), second.source()));
    assert!(std::sync::Arc::ptr_eq(first.source(), &<Train as ComputeFn>::source()));
}

#[test]
fn a_payload_may_have_many_arguments() {
    assert_eq!(arguments(wide::many(1, 2, 3, 4, 5, 6, 7, 8, "x".to_owned())).len(), 9);
    assert_eq!(arguments(wide::flags(true, true, true, false))["d"], Any::Bool(false));
}

#[test]
fn none_is_omitted_if_python_has_a_default_and_passed_otherwise() {
    let passed = arguments(train(5, 64, None, Some("x")));
    assert_eq!(
        passed,
        BTreeMap::from([
            ("epochs".to_owned(), Any::Int(5)),
            ("batch_size".to_owned(), Any::Int(64)),
            ("name".to_owned(), Any::Text("x".to_owned())),
        ])
    );
    assert_eq!(arguments(train(5, 64, Some(0.5), None))["rate"], Any::Float(0.5));
    assert_eq!(arguments(with_settings("a", None)).len(), 1, "an option that is None is omitted");
    assert_eq!(arguments(with_settings("a", Some(3)))["depth"], Any::Int(3));
    let passed = arguments(inline(1, None));
    assert_eq!(passed, BTreeMap::from([("a".to_owned(), Any::Int(1)), ("b".to_owned(), Any::None)]));
}

#[test]
fn borrowed_arguments_arrive_and_bytes_are_bytes() {
    let task = at_once(&[1.5, 2.0], b"xyz", vec![true]).into_task().unwrap();
    #[derive(serde::Deserialize)]
    struct Passed {
        values: Vec<f64>,
        flags: Vec<bool>,
    }
    let passed: Passed = value::decode(&task.args).unwrap();
    assert_eq!(passed.values, vec![1.5, 2.0]);
    assert_eq!(passed.flags, vec![true]);
    let bytes = b"\xa4data\xc4\x03xyz";
    assert!(task.args.windows(bytes.len()).any(|window| window == bytes), "MessagePack's binary type");
}

#[test]
fn an_inline_body_keeps_its_lines() {
    let call = inline(1, Some(2));
    let source = call.source();
    assert_eq!(source.entry(), "inline");
    assert_eq!(source.main(), "tests/compute_macro.rs");
    assert_eq!(
        source.main_text(),
        indoc! {r#"
            def inline(a, b):
                text = """
            outdented
              indented"""
                if b is None:
                    return a
                return a + b + len(text)
        "#}
    );
    assert_eq!(source.first_line(), INLINE_OPENS);

    let here = include_str!("compute_macro.rs").lines().collect::<Vec<_>>();
    let shown = |first: u32, line: usize| here[first as usize - 1 + line].trim();
    assert_eq!(shown(source.first_line(), 4), "if b is None:");
    let once = at_once(&[], &[], vec![]);
    assert_eq!(
        once.source().main_text(),
        indoc! {"
            def at_once(values, data, flags):
                return sum(values)
        "}
    );
    assert_eq!(shown(once.source().first_line(), 1), "\"return sum(values)\"");
}

#[test]
fn a_folder_is_embedded_with_all_its_files() {
    let call = package(1);
    let source = call.source();
    let files: Vec<_> = source.files().iter().map(|file| (&*file.path, file.text.len())).collect();
    assert_eq!(
        files,
        [
            ("trainer/__init__.py", include_str!("ui/payloads/trainer/__init__.py").len()),
            ("trainer/data/__init__.py", include_str!("ui/payloads/trainer/data/__init__.py").len()),
            ("trainer/fit.py", include_str!("ui/payloads/trainer/fit.py").len()),
        ]
    );
    assert_eq!(source.main(), "trainer/__init__.py");
    assert_eq!(source.entry(), "train");
}

#[test]
fn generators_stream_and_rust_bodies_build() {
    let task = counting(3).into_task().unwrap();
    assert!(task.streaming);
    assert_eq!(
        task.source.main_text(),
        indoc! {"
            def counting(to):
                for number in range(to):
                    yield number
        "}
    );

    let call = scaled(2.0, 3.0);
    assert_eq!(
        call.source().main_text(),
        indoc! {"
            def scaled(x):
                return x * 2.0
        "}
    );
    assert_eq!(arguments(call)["x"], Any::Float(3.0));
}

/// Runs Python's own compiler and traceback module as a worker does: the text begins at the
/// source's first line.
#[test]
fn python_sees_the_lines_of_the_rust_file() {
    let call = failing(3);
    let source = call.source();
    let script = "
import sys, traceback
name, first, entry = sys.argv[1:]
space = {}
exec(compile('\\n' * (int(first) - 1) + sys.stdin.read(), name, 'exec'), space)
try:
    space[entry](3)
except ValueError as error:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    print(f'{frame.filename}:{frame.lineno}: {error}', end='')
";
    let mut python = Command::new("python3")
        .args(["-c", script, source.main(), &source.first_line().to_string(), source.entry()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(source.main_text().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("tests/compute_macro.rs:{RAISES_AT}: 3 is wrong\n  as it is")
    );
}

#[test]
fn fields_that_python_does_not_return_are_reported_before_anything_starts() {
    let checked = |builder: skyward::pool::PoolBuilder| builder.check();
    checked(skyward::pool::Pool::builder().payload::<Described>()).unwrap();
    <Train as ComputeFn>::check().unwrap();
    <OfAnyType as ComputeFn>::check().unwrap();

    let error = checked(skyward::pool::Pool::builder().payload::<MisspeltPayload>()).unwrap_err();
    assert_eq!(error.kind(), skyward::error::ErrorKind::InvalidSpec);
    assert_eq!(
        error.message(),
        "the result of `describe` does not fit its Rust type: `Misspelt` requires the field `spraed`, \
         which the class `Summary` (tests/payloads/fields.py:11:7) does not have"
    );
    assert!(error.hint().unwrap().starts_with("did you mean `spread`?"), "{error}");

    let error = <Streamed as ComputeFn>::check().unwrap_err();
    assert!(error.message().contains("the class `Score` (tests/payloads/fields.py:16:7)"), "{error}");
}
