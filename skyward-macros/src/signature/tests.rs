use super::*;
use quote::quote;

fn check(tokens: proc_macro2::TokenStream) -> Result<Signature, Vec<String>> {
    syn::parse2::<Declaration>(tokens)
        .and_then(|declaration| declaration.check())
        .map_err(|error| error.into_iter().map(|error| format!("{error:#}")).collect())
}

#[test]
fn arguments_and_result_are_read() {
    let signature = check(quote! {
        pub fn train(epochs: u32, rate: Option<f64>, text: &str, r#type: &[u8], deep: Option<Vec<&str>>) -> Streaming<f64>;
    })
    .unwrap();
    let forms: Vec<_> = signature
        .arguments
        .iter()
        .map(|argument| (argument.name.as_str(), argument.form.optional, argument.form.borrowed, argument.form.bytes))
        .collect();
    assert_eq!(
        forms,
        [
            ("epochs", false, false, false),
            ("rate", true, false, false),
            ("text", false, true, false),
            ("type", false, true, true),
            ("deep", true, true, false),
        ]
    );
    assert_eq!(signature.result, ResultForm::Unknown);
    assert_eq!(
        check(quote!(
            fn nothing();
        ))
        .unwrap()
        .result,
        ResultForm::Unit
    );
    assert_eq!(
        check(quote!(
            fn maybe() -> Option<u8>;
        ))
        .unwrap()
        .result,
        ResultForm::Option
    );
}

#[test]
fn what_has_no_meaning_is_refused_all_at_once() {
    let messages = check(quote! {
        async fn train<T>(&self, (a, b): (u8, u8), mut c: u8) -> impl Copy;
    })
    .err()
    .unwrap();
    for (message, words) in messages.iter().zip([
        "async",
        "no `self`",
        "passes arguments by name",
        "remove `mut`",
        "`T` is used by no",
        "must have a name",
    ]) {
        assert!(message.contains(words), "{message} should say {words}");
    }
    assert_eq!(messages.len(), 6);
}

#[test]
fn a_rust_body_returns_a_payload_and_nothing_else_does() {
    assert!(
        check(quote!(
            fn f(mut a: u8, (b, c): (u8, u8)) -> Payload<u8> {
                make(a, b, c)
            }
        ))
        .is_ok()
    );
    assert!(
        check(quote!(
            fn f() -> u8 {
                1
            }
        ))
        .err()
        .unwrap()[0]
            .contains("-> Payload<T>")
    );
    assert!(
        check(quote!(
            fn f() -> Payload<u8>;
        ))
        .err()
        .unwrap()[0]
            .contains("returns `T` itself")
    );
    assert!(
        check(quote!(
            fn f() -> PendingCompute<u8> {
                "return 1"
            }
        ))
        .err()
        .unwrap()[0]
            .contains("`-> T`")
    );
}

#[test]
fn only_functions_are_declared() {
    assert!(
        check(quote!(
            struct S;
        ))
        .err()
        .unwrap()[0]
            .contains("put it on a `fn`")
    );
}
