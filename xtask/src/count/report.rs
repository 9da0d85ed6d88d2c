//! The counts as text: tables, or a line for everything that is counted.

use std::fmt::{self, Write as _};

use super::impls::{Spread, WIDE};
use super::messages::MESSAGES;
use super::public::Column;
use super::{Counts, Found, Lines, Package};

/// The tables.
pub(super) fn tables(counts: &Counts) -> String {
    let wide = wide(counts);
    format!(
        "by package: lines of production code, constants of time (const), public items (pub)\n\n{}\n\
         enums of messages of {}\n\n{}\n\
         types with inherent `impl` blocks in {WIDE} or more files: {}\n\n{}",
        packages(counts),
        MESSAGES.of,
        messages(counts),
        wide.len(),
        types(&wide)
    )
}

/// A line for each thing, with tabs between what it is, its package or crate, its name, its value,
/// and its place.
pub(super) fn list(counts: &Counts) -> String {
    let mut lines = Vec::new();
    let mut add = |what: &str, of: &str, found: &Found| {
        let Found { name, what: value, file, line } = found;
        lines.push(format!("{what}\t{of}\t{name}\t{value}\t{}:{line}", file.display()));
    };
    for package in &counts.packages {
        package.times.iter().for_each(|found| add("time", &package.name, found));
        package.public.iter().flatten().for_each(|found| add("public", &package.name, found));
    }
    for message in &counts.messages {
        message.variants.iter().for_each(|variant| add("message", MESSAGES.of, &variant.found));
    }
    for spread in wide(counts) {
        let of = spread.path.split("::").next().unwrap_or_default();
        spread.inherent.iter().for_each(|found| add("impl", of, found));
    }
    for package in &counts.packages {
        for (language, files) in [("rust", &package.rust), ("python", &package.python)] {
            let files = files.iter().map(|Lines { file, lines }| (file.display(), lines));
            lines.extend(files.map(|(file, count)| format!("lines\t{}\t{language}\t{count}\t{file}", package.name)));
        }
    }
    lines.sort();
    lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
}

fn packages(counts: &Counts) -> Table {
    let sum = |files: &[Lines]| files.iter().map(|file| file.lines).sum::<usize>();
    let public = |package: &Package, column| {
        let of = |found: &[Found]| found.iter().filter(|found| Column::of(found) == column).count();
        package.public.as_deref().map(of)
    };
    let row = |package: &Package| {
        let (rust, python) = (sum(&package.rust), sum(&package.python));
        let lines = [rust, python, rust + python, package.times.len()].map(Some);
        let public = [Column::Items, Column::Methods, Column::Fields].map(|column| public(package, column));
        lines.into_iter().chain(public).collect::<Vec<_>>()
    };
    let columns = ["package", "Rust", "Python", "lines", "const", "pub items", "pub methods", "pub fields"];
    let mut table = Table::new(&columns);
    let rows: Vec<_> = counts.packages.iter().map(row).collect();
    for (package, row) in counts.packages.iter().zip(&rows) {
        table.add(&package.name, row.iter().copied());
    }
    let total = |column: usize| Some(rows.iter().filter_map(|row| row[column]).sum());
    table.add("all", (0..columns.len() - 1).map(total));
    table
}

fn messages(counts: &Counts) -> Table {
    let all = &counts.messages;
    let mut table = Table::new(&["enum", "variants", "leaves", "expanded"]);
    let mut total = [0; 3];
    for message in all {
        let row = [message.variants.len(), message.leaves(), message.expanded(all)];
        table.add(&message.path, row.map(Some));
        total[0] += row[0];
        total[1] += row[1];
        // The leaves of an enum that another one wraps are in the expansion of that one.
        total[2] += if message.is_wrapped(all) { 0 } else { row[2] };
    }
    table.add("all", total.map(Some));
    table
}

fn types(wide: &[&Spread]) -> Table {
    let mut table = Table::new(&["type", "files", "files of traits"]);
    for spread in wide {
        table.add(&spread.path, [spread.inherent.len(), spread.traits.len()].map(Some));
    }
    table
}

/// The types that are listed, those in the most files first.
fn wide(counts: &Counts) -> Vec<&Spread> {
    let mut wide: Vec<&Spread> = counts.spread.iter().filter(|spread| spread.is_wide()).collect();
    wide.sort_by(|one, other| other.inherent.len().cmp(&one.inherent.len()).then_with(|| one.path.cmp(&other.path)));
    wide
}

/// A table whose first column has names, and whose others have numbers.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|column| (*column).to_owned()).collect()] }
    }

    /// Adds a row; a number that does not exist is a dash.
    fn add(&mut self, name: &str, numbers: impl IntoIterator<Item = Option<usize>>) {
        let numbers = numbers.into_iter().map(|number| number.map_or_else(|| "-".to_owned(), |n| n.to_string()));
        self.rows.push([name.to_owned()].into_iter().chain(numbers).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                match column {
                    0 => write!(line, "{cell:<width$}")?,
                    _ => write!(line, "  {cell:>width$}")?,
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Enums, read};
    use super::super::{Crate, impls, lines, parsed, public, times};
    use super::*;

    fn counts() -> Counts {
        let files = [
            ("a", "pub struct A { pub b: u8 }\nimpl A {}\nconst WAIT: Duration = Duration::from_secs(1);"),
            ("b", "pub enum B { C(super::c::D), E }\nimpl super::a::A {}"),
            ("c", "pub enum D { F, G }\nimpl super::a::A { pub fn h() {} }"),
        ];
        let one = Crate::of("k", parsed(&files));
        let rust =
            |source: &crate::sources::Source| Lines { file: source.path.clone(), lines: lines::rust(&source.syntax) };
        let package = |name: &str, is_published: bool| Package {
            name: name.to_owned(),
            rust: one.sources.iter().map(rust).collect(),
            python: vec![Lines { file: "python/a.py".into(), lines: 10 }],
            times: one.sources.iter().flat_map(times::constants).collect(),
            public: is_published.then(|| one.sources.iter().flat_map(public::items).collect()),
        };
        Counts {
            packages: vec![package("first", true), package("second", false)],
            messages: read(&one, &Enums { of: "k", paths: &["b", "c::D"] }).unwrap(),
            spread: impls::spread(&one),
        }
    }

    #[test]
    fn tables_have_a_row_for_each_and_the_sums() {
        let expected = "\
by package: lines of production code, constants of time (const), public items (pub)

package  Rust  Python  lines  const  pub items  pub methods  pub fields
first       7      10     17      1          3            1           1
second      7      10     17      1          -            -           -
all        14      20     34      2          3            1           1

enums of messages of skyward_core

enum  variants  leaves  expanded
b::B         2       1         3
c::D         2       2         2
all          4       3         3

types with inherent `impl` blocks in 3 or more files: 1

type     files  files of traits
k::a::A      3                0
";
        assert_eq!(tables(&counts()), expected);
    }

    #[test]
    fn the_list_is_sorted_and_has_places() {
        let list = list(&counts());
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines.is_sorted());
        for line in [
            "impl\tk\tk::a::A\timpl\tsrc/b.rs:2",
            "lines\tfirst\tpython\t10\tpython/a.py",
            "lines\tfirst\trust\t3\tsrc/a.rs",
            "message\tskyward_core\tb::B::C\twraps c::D\tsrc/b.rs:1",
            "message\tskyward_core\tb::B::E\tleaf\tsrc/b.rs:1",
            "public\tfirst\tA::b\tfield\tsrc/a.rs:1",
            "time\tsecond\tWAIT\tDuration::from_secs(1)\tsrc/a.rs:3",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{list}");
        }
        assert!(!list.contains("public\tsecond"), "{list}");
    }
}
