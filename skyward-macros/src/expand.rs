//! From a checked declaration to Rust.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Block, Ident, Path};

use crate::check::Passing;
use crate::signature::{Argument, Declaration, Signature};

/// Source that is known now.
pub(crate) struct Source {
    pub(crate) entry: String,
    pub(crate) main: String,
    pub(crate) first_line: u32,
    pub(crate) files: Vec<(String, Text)>,
}

/// The text of a file.
pub(crate) enum Text {
    /// It is in the macro's hands.
    Inline(String),
    /// It is in the file of this path, relative to the manifest.
    File(String),
}

/// The function and, under the same name, the type that knows its source.
pub(crate) fn with_source(
    declaration: &Declaration,
    signature: &Signature,
    facade: &Path,
    source: &Source,
    passing: &[Passing],
) -> TokenStream {
    let Declaration { visibility, .. } = declaration;
    let name = &signature.name;
    // A user's argument may have any name.
    let args = Ident::new("args", Span::mixed_site());
    let passed =
        signature.arguments.iter().zip(passing).map(|(argument, passing)| pass(argument, *passing, &args, facade));
    let output = &signature.output;
    let span = generated_at(output.span());
    let private = private_at(facade, span);
    let known = quote_spanned!(span=> <#name as #private::ComputeFn>::source());
    let call = quote_spanned!(span=> #private::PendingCompute::new(#known, #args));
    let body = quote! {
        let #args = #facade::__private::Args::new();
        #(#passed)*
        #call
    };
    let function = function(declaration, signature, facade, &TokenStream::new(), &body);
    let conditions = declaration.attributes.iter().filter(|attribute| is_condition(attribute));
    let conditions: Vec<_> = conditions.collect();
    let Source { entry, main, first_line, files } = source;
    let files = files.iter().map(|(path, text)| match text {
        Text::Inline(text) => quote!((#path, #text)),
        Text::File(file) => {
            let file = format!("/{file}");
            quote!((#path, ::core::include_str!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), #file))))
        }
    });
    quote! {
        #function

        #(#conditions)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, missing_docs, missing_debug_implementations, unreachable_pub, dead_code)]
        #visibility enum #name {}

        #(#conditions)*
        const _: () = {
            static SOURCE: #facade::__private::StaticSource =
                #facade::__private::StaticSource::new(#entry, #main, #first_line, &[#(#files),*]);

            impl #facade::__private::ComputeFn for #name {
                fn source() -> #facade::__private::Arc<#facade::__private::Source> {
                    SOURCE.get()
                }
            }
        };
    }
}

/// The function around a Rust body that puts a payload together.
pub(crate) fn with_rust(declaration: &Declaration, signature: &Signature, facade: &Path, block: &Block) -> TokenStream {
    let output = &declaration.signature.output;
    let build = Ident::new("build", Span::mixed_site());
    let body = quote! {
        #[allow(clippy::redundant_closure_call, reason = "`return` in the body ends the body")]
        let #build = (move || #output #block)();
        ::core::convert::Into::into(#build)
    };
    function(declaration, signature, facade, &TokenStream::new(), &body)
}

/// The function alone, for a declaration that is wrong: so that its callers get no further errors.
pub(crate) fn without_source(declaration: &Declaration, signature: &Signature, facade: &Path) -> TokenStream {
    let quiet = quote!(#[allow(unused, clippy::all)]);
    function(declaration, signature, facade, &quiet, &quote!(::core::unreachable!()))
}

fn function(
    declaration: &Declaration,
    signature: &Signature,
    facade: &Path,
    lints: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    let Declaration { attributes, visibility, signature: written, .. } = declaration;
    let syn::Signature { ident, generics, inputs, .. } = written;
    let (generics, where_clause) = (&generics.params, &generics.where_clause);
    let generics = (!generics.is_empty()).then(|| quote!(<#generics>));
    let output = &signature.output;
    let span = output.span();
    let result = quote_spanned!(span=> #facade::__private::PendingCompute<#output>);
    quote! {
        #(#attributes)*
        #lints
        #visibility fn #ident #generics (#inputs) -> #result #where_clause {
            #body
        }
    }
}

/// `let args = args.with("name", &name);`, in the form that the argument's type needs.
fn pass(argument: &Argument, passing: Passing, args: &Ident, facade: &Path) -> TokenStream {
    let Argument { ident, name, ty, shape } = argument;
    let span = generated_at(ty.span());
    let private = private_at(facade, span);
    let value = Ident::new("value", Span::mixed_site());
    let with = |value: TokenStream| match (shape.bytes, shape.borrowed) {
        (true, _) => quote_spanned!(span=> #private::Args::with_bytes(#args, #name, #value)),
        (_, true) => quote_spanned!(span=> #private::Args::with_borrowed(#args, #name, &#value)),
        _ => quote_spanned!(span=> #private::Args::with(#args, #name, &#value)),
    };
    let passed = match (passing, shape.optional && (shape.bytes || passing == Passing::UnlessNone)) {
        (_, false) => with(quote!(#ident)),
        (passing, true) => {
            let some = with(quote!((*#value)));
            let none = match passing {
                Passing::UnlessNone => quote!(#args),
                Passing::Always => quote!(#private::Args::with(#args, #name, &())),
            };
            quote! {
                match &#ident {
                    ::core::option::Option::Some(#value) => #some,
                    ::core::option::Option::None => #none,
                }
            }
        }
    };
    quote!(let #args = #passed;)
}

/// Messages point there, and lints know that nobody wrote it.
fn generated_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The path of what the macro's output names, in messages at another place.
fn private_at(facade: &Path, span: Span) -> TokenStream {
    let moved = facade.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(span));
        token
    });
    let facade: TokenStream = moved.collect();
    quote_spanned!(span=> #facade::__private)
}

/// Whether the attribute decides that the item is there at all.
fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
