//! Constants of time: durations, and numbers whose name has a unit of time.

use quote::ToTokens;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Expr, Ident, Type};

use super::Found;
use crate::sources::Source;

/// The constants of time in a file: `const` and `static`, also associated ones and those within
/// functions.
pub(super) fn constants(source: &Source) -> Vec<Found> {
    let mut constants = Constants { source, found: Vec::new() };
    constants.visit_file(&source.syntax);
    constants.found
}

struct Constants<'s> {
    source: &'s Source,
    found: Vec<Found>,
}

impl Constants<'_> {
    fn add(&mut self, name: &Ident, of: &Type, value: Option<&Expr>) {
        if is_of_time(&name.to_string(), of) {
            let value = value.and_then(|value| value.span().source_text()).unwrap_or_default();
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            self.found.push(Found::new(name.to_string(), value, self.source, name.span()));
        }
    }
}

impl<'s> Visit<'s> for Constants<'_> {
    fn visit_item_const(&mut self, item: &'s syn::ItemConst) {
        self.add(&item.ident, &item.ty, Some(&item.expr));
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'s syn::ItemStatic) {
        self.add(&item.ident, &item.ty, Some(&item.expr));
        visit::visit_item_static(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'s syn::ImplItemConst) {
        self.add(&item.ident, &item.ty, Some(&item.expr));
        visit::visit_impl_item_const(self, item);
    }

    fn visit_trait_item_const(&mut self, item: &'s syn::TraitItemConst) {
        self.add(&item.ident, &item.ty, item.default.as_ref().map(|(_, value)| value));
        visit::visit_trait_item_const(self, item);
    }
}

fn is_of_time(name: &str, of: &Type) -> bool {
    let words = of.to_token_stream().to_string();
    let mut words = words.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    let has_unit = || name.split('_').any(|word| UNITS.contains(&word));
    words.clone().any(|word| word == "Duration") || (words.any(|word| NUMBERS.contains(&word)) && has_unit())
}

const NUMBERS: [&str; 14] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];
const UNITS: [&str; 20] = [
    "NANOS",
    "NANOSECONDS",
    "NS",
    "MICROS",
    "MICROSECONDS",
    "US",
    "MILLIS",
    "MILLISECONDS",
    "MS",
    "SEC",
    "SECS",
    "SECOND",
    "SECONDS",
    "MINUTE",
    "MINUTES",
    "HOUR",
    "HOURS",
    "DAY",
    "DAYS",
    "YEARS",
];

#[cfg(test)]
mod tests {
    use super::super::parsed;
    use super::*;

    #[test]
    fn durations_and_numbers_with_a_unit_are_constants_of_time() {
        let text = "
            const A: Duration = Duration::from_secs(1); // a comment
            const B: [std::time::Duration; 2] = [Duration::ZERO,
                Duration::MAX];
            pub(crate) const GRACE_SECONDS: f64 = 2.5;
            static PAUSE_MS: u64 = 3;
            struct S { within: Duration }
            impl S { const C: Option<Duration> = None; }
            trait T { const D: Duration; const MOST: u64 = 1; }
            fn f() { const E: Duration = A; let f: Duration = A; }
            const MAX_DEPTH: u64 = 4;
            const SECONDS: &str = \"// s\";
            #[cfg(test)] const G: Duration = A;
            #[cfg(test)] mod tests { const H: Duration = super::A; }
            /// const I: Duration = A;
            const SLICES: usize = 1;
        ";
        let sources = parsed(&[("", text)]);
        let found = constants(&sources[0]);
        let found: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.what.as_str(), one.line)).collect();
        let expected = [
            ("A", "Duration::from_secs(1)", 2),
            ("B", "[Duration::ZERO, Duration::MAX]", 3),
            ("GRACE_SECONDS", "2.5", 5),
            ("PAUSE_MS", "3", 6),
            ("C", "None", 8),
            ("D", "", 9),
            ("E", "A", 10),
        ];
        assert_eq!(found, expected);
    }
}
