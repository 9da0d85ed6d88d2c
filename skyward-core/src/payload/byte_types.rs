//! Rust types that are a sequence of bytes as a whole.

/// Whether the type of this name, as [`std::any::type_name`] writes it, is one sequence of `u8`: a
/// slice, an array or a `Vec`, also borrowed, in a box, or in an `Option`.
///
/// Names are compared for two reasons. Serde shows the elements of a sequence one by one, and an
/// array as a tuple, so it does not distinguish `[u8; 3]` from `(u8, u8, u8)`. And types with a
/// lifetime or of any length have no single `TypeId`.
///
/// The compiler may change how it writes names. A test covers the present names; a value with an
/// unknown name is sent as a list.
pub(super) fn is_bytes(type_name: &str) -> bool {
    let mut name = type_name.trim();
    loop {
        let wrapped = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)?.strip_suffix('>'));
        let inner = wrapped.or_else(|| name.strip_prefix('&')).map(without_lifetime);
        match inner {
            Some(inner) => name = inner.strip_prefix("mut ").unwrap_or(inner),
            None => break,
        }
    }
    let array = || name.strip_prefix("[u8; ")?.strip_suffix(']');
    matches!(name, "[u8]" | "alloc::vec::Vec<u8>")
        || array().is_some_and(|length| length.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Removes a lifetime from the front: `'_, [u8]` and `'_ [u8]` become `[u8]`.
fn without_lifetime(name: &str) -> &str {
    let Some(lifetime) = name.strip_prefix('\'') else { return name };
    lifetime.trim_start_matches(|c: char| c == '_' || c.is_alphanumeric()).trim_start_matches([',', ' '])
}

const WRAPPERS: [&str; 5] =
    ["core::option::Option<", "alloc::boxed::Box<", "alloc::borrow::Cow<", "alloc::sync::Arc<", "alloc::rc::Rc<"];

#[cfg(test)]
mod tests {
    use std::any::type_name;
    use std::borrow::Cow;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_names_of_this_compiler_are_known() {
        for name in [
            type_name::<Vec<u8>>(),
            type_name::<[u8]>(),
            type_name::<[u8; 32]>(),
            type_name::<&[u8]>(),
            type_name::<&mut [u8; 4]>(),
            type_name::<Box<[u8]>>(),
            type_name::<Arc<[u8]>>(),
            type_name::<Rc<Vec<u8>>>(),
            type_name::<Cow<'static, [u8]>>(),
            type_name::<Option<Cow<'_, [u8]>>>(),
            type_name::<Option<&Vec<u8>>>(),
            type_name::<Option<Box<[u8; 8]>>>(),
            "&'_ [u8]",
            "alloc::borrow::Cow<'_, [u8]>",
        ] {
            assert!(is_bytes(name), "{name}");
        }
        for name in [
            type_name::<u8>(),
            type_name::<(u8, u8)>(),
            type_name::<Vec<i8>>(),
            type_name::<[u16; 2]>(),
            type_name::<Vec<Vec<u8>>>(),
            type_name::<[Option<u8>; 2]>(),
            type_name::<(Vec<u8>,)>(),
            type_name::<Option<u8>>(),
            type_name::<[[u8; 2]; 2]>(),
            type_name::<&str>(),
        ] {
            assert!(!is_bytes(name), "{name}");
        }
    }
}
