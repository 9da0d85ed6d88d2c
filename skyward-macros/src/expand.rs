//! From a checked declaration to Rust.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use skyward_python::{Class, Neighbours, Structure};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Attribute, Block, Ident, Path, Type};

use crate::args::Options;
use crate::check::Passing;
use crate::signature::{Argument, Declaration, Signature};

/// A source that is known when the crate compiles.
pub(crate) struct Source {
    pub(crate) entry: String,
    /// The framework whose world the entry's decorator joins.
    pub(crate) joins: Option<&'static str>,
    /// What the entry's annotation says about its result.
    pub(crate) returned: Option<Structure>,
    /// What lies beside the payload and is no part of it.
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) main: String,
    pub(crate) first_line: u32,
    pub(crate) files: Vec<(String, Text)>,
}

/// The text of a file.
pub(crate) enum Text {
    /// The macro has the text.
    Inline(String),
    /// The text is in the file of this path, relative to the manifest.
    File(String),
    /// The macro has the text of a file with a byte order mark or another encoding than UTF-8.
    Decoded(String, String),
}

/// What the Python function returns. The compiler compares it with the result type, which may be an
/// alias.
pub(crate) struct Expected {
    pub(crate) streams: bool,
    pub(crate) message: String,
    pub(crate) advice: &'static str,
}

/// A Python body that returns no value. The compiler compares it with the result type, which may be
/// an alias of `()`.
pub(crate) struct Unreturned {
    pub(crate) message: &'static str,
    pub(crate) advice: &'static str,
    /// Returning None may be intended.
    pub(crate) allows_option: bool,
}

/// The result of checking a declaration with Python source.
pub(crate) struct Made {
    pub(crate) source: Source,
    pub(crate) passing: Vec<Passing>,
    pub(crate) expected: Option<Expected>,
    pub(crate) unreturned: Option<Unreturned>,
    /// Errors of some builds.
    pub(crate) required: Vec<TokenStream>,
}

/// The function, and the type that stands for the payload where one is asked for.
pub(crate) fn with_source(
    declaration: &Declaration,
    signature: &Signature,
    options: &Options,
    made: &Made,
) -> TokenStream {
    let Options { facade, payload, .. } = options;
    // A user's argument may have any name, and a pattern would mean a constant of its own name.
    let args = Ident::new("__skyward_args", Span::mixed_site());
    let arguments = signature.arguments.iter().zip(&made.passing);
    let passed = arguments.map(|(argument, passing)| pass(argument, *passing, &args, facade));
    let output = &signature.output;
    let span = generated_at(output.span());
    let private = private_at(facade, span);
    let source = source(&made.source, facade);
    let known = match payload {
        Some(payload) => quote_spanned!(span=> <#payload as #private::ComputeFn>::source()),
        None => quote!({ #source __SKYWARD_SOURCE.get() }),
    };
    let call = quote_spanned!(span=> #private::PendingCompute::new(#known, #args));
    let expected = made.expected.as_ref().map(|expected| compare(expected, signature, facade));
    let unreturned = made.unreturned.as_ref().map(|unreturned| compare_unreturned(unreturned, signature, facade));
    let required = &made.required;
    let body = quote! {
        #(#required)*
        #expected
        #unreturned
        let #args = #facade::__private::Args::new();
        #(#passed)*
        #call
    };
    let function = function(declaration, signature, facade, &body);
    // The static cannot name a type parameter of the function.
    let returned = made.source.returned.as_ref().filter(|_| declaration.signature.generics.params.is_empty());
    let check = returned.map(|structure| check(&made.source.entry, structure, output, &quote!(#facade::__private)));
    let payload =
        payload.as_ref().map(|payload| stand_in(declaration, signature, payload, &source, check.as_ref(), facade));
    quote!(#function #payload)
}

/// A static with the source.
fn source(source: &Source, facade: &Path) -> TokenStream {
    let Source { entry, joins, neighbours, main, first_line, files, .. } = source;
    let joining = joins.map(|framework| quote!(.joining(#framework)));
    let beside =
        neighbours.as_ref().map(|Neighbours { modules, advice, .. }| quote!(.beside(&[#(#modules),*], #advice)));
    let at = |file: &str| {
        let file = format!("/{file}");
        quote!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), #file))
    };
    let files = files.iter().map(|(path, text)| match text {
        Text::Inline(text) => quote!((#path, #text)),
        Text::File(file) => {
            let at = at(file);
            quote!((#path, ::core::include_str!(#at)))
        }
        // A change to the file compiles the crate anew.
        Text::Decoded(text, file) => {
            let at = at(file);
            quote!((#path, { const _: &[u8] = ::core::include_bytes!(#at); #text }))
        }
    });
    quote! {
        static __SKYWARD_SOURCE: #facade::__private::StaticSource =
            #facade::__private::StaticSource::new(#entry, #main, #first_line, &[#(#files),*])#joining #beside;
    }
}

/// The type that stands for the payload. The user names it, because any name made up here could be
/// taken by a crate, or in a module that re-exports the function.
fn stand_in(
    declaration: &Declaration,
    signature: &Signature,
    payload: &Ident,
    source: &TokenStream,
    check: Option<&TokenStream>,
    facade: &Path,
) -> TokenStream {
    let visibility = &declaration.visibility;
    let conditions: Vec<_> = declaration.attributes.iter().filter(|attribute| is_condition(attribute)).collect();
    let documentation = format!("Stands for the payload of `{}`.", signature.name.unraw());
    // No `allow` for a type that only a builder names, which a `forbid` of the user's would refuse:
    // lints pass over items of another crate's macro, which an item is by its spans.
    let (visibility, name) = (generated(visibility), generated(payload));
    quote! {
        #(#conditions)*
        #[doc = #documentation]
        #visibility enum #name {}

        #(#conditions)*
        const _: () = {
            #source

            impl #facade::__private::ComputeFn for #payload {
                fn source() -> #facade::__private::Arc<#facade::__private::Source> {
                    __SKYWARD_SOURCE.get()
                }

                #check
            }

            impl ::core::fmt::Debug for #payload {
                fn fmt(&self, _: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    match *self {}
                }
            }
        };
    }
}

/// Makes the compiler compare the result type with the function, with messages about the function.
fn compare(expected: &Expected, signature: &Signature, facade: &Path) -> TokenStream {
    let Expected { streams, message, advice } = expected;
    // Messages of the compiler show these names.
    let (kind, name) = if *streams { ("Items", "__Yields") } else { ("Whole", "__Returns") };
    compare_type("KIND", &[kind], name, message, advice, signature, facade)
}

/// Makes the compiler check whether a body may return nothing.
fn compare_unreturned(unreturned: &Unreturned, signature: &Signature, facade: &Path) -> TokenStream {
    let Unreturned { message, advice, allows_option } = unreturned;
    let allowed: &[&str] = if *allows_option { &["Nothing", "Optional"] } else { &["Nothing"] };
    compare_type("REST", allowed, "__ReturnsNothing", message, advice, signature, facade)
}

/// Makes the compiler check that the result type's constant of `Declared` is one of these.
fn compare_type(
    constant: &str,
    allowed: &[&str],
    name: &str,
    message: &str,
    advice: &str,
    signature: &Signature,
    facade: &Path,
) -> TokenStream {
    let (message, advice) = (literally(message), literally(advice));
    let output = &signature.output;
    let span = generated_at(output.span());
    let private = private_at(facade, span);
    let ident = |name: &str| Ident::new(name, Span::mixed_site());
    let (name, constant) = (ident(name), Ident::new(constant, span));
    let allowed = allowed.iter().map(|name| ident(name));
    let declared = quote_spanned!(span=> &#private::Declared::<#output>::#constant);
    quote! {
        {
            #[diagnostic::on_unimplemented(message = #message, label = #advice)]
            trait #name {
                fn is_declared(&self) {}
            }
            #(impl #name for #facade::__private::#allowed {})*
            use #facade::__private::DeclaredWhole as _;
            #name::is_declared(#declared);
        }
    }
}

/// The text with its braces escaped, for use as a format string.
fn literally(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

/// The function around a Rust body that puts a payload together.
pub(crate) fn with_rust(declaration: &Declaration, signature: &Signature, facade: &Path, block: &Block) -> TokenStream {
    let output = &declaration.signature.output;
    let build = Ident::new("__skyward_built", Span::mixed_site());
    let body = quote! {
        // `return` in the body ends the body.
        let #build = ::core::convert::identity(move || #output #block)();
        ::core::convert::Into::into(#build)
    };
    function(declaration, signature, facade, &body)
}

/// The function without a source, for a wrong declaration, so that its callers get no further
/// errors.
pub(crate) fn without_source(
    declaration: &Declaration,
    signature: &Signature,
    facade: &Path,
    expected: Option<&Expected>,
) -> TokenStream {
    let expected = expected.map(|expected| compare(expected, signature, facade));
    let used =
        signature.arguments.iter().map(|Argument { ident, conditions, .. }| quote!(#(#conditions)* let _ = &#ident;));
    function(declaration, signature, facade, &quote!(#(#used)* #expected ::core::unreachable!()))
}

fn function(declaration: &Declaration, signature: &Signature, facade: &Path, body: &TokenStream) -> TokenStream {
    let Declaration { attributes, visibility, signature: written, .. } = declaration;
    let syn::Signature { ident, generics, inputs, .. } = written;
    let (generics, where_clause) = (&generics.params, &generics.where_clause);
    let generics = (!generics.is_empty()).then(|| quote!(<#generics>));
    let output = &signature.output;
    let span = output.span();
    let result = quote_spanned!(span=> #facade::__private::PendingCompute<#output>);
    // Only where it is needed: a `forbid` of the user's refuses it.
    let many = (inputs.len() > MOST_ARGUMENTS)
        .then(|| quote!(#[allow(clippy::too_many_arguments, reason = "they are those of the Python function")]));
    // Before the user's attributes, which can override it.
    quote! {
        #many
        #(#attributes)*
        #visibility fn #ident #generics (#inputs) -> #result #where_clause {
            #body
        }
    }
}

/// Compares the fields of the result's type with those of the Python class.
fn check(entry: &str, structure: &Structure, output: &Type, private: &TokenStream) -> TokenStream {
    let structure = constant(structure, private);
    quote! {
        fn check() -> #private::Result<()> {
            const __SKYWARD_STRUCTURE: #private::Structure = #structure;
            <#output as #private::Output>::check_structure(#entry, __SKYWARD_STRUCTURE)
        }
    }
}

/// A structure as a constant expression; `private` is where its types are.
fn constant(structure: &Structure, private: &TokenStream) -> TokenStream {
    match structure {
        Structure::List(inner) => {
            let inner = constant(inner, private);
            quote!(#private::Structure::List(&#inner))
        }
        Structure::Dict(inner) => {
            let inner = constant(inner, private);
            quote!(#private::Structure::Dict(&#inner))
        }
        Structure::Class(Class { name, place, fields, .. }) => {
            let fields = fields.iter().map(|(name, structure)| {
                let structure = constant(structure, private);
                quote!((#name, #structure))
            });
            quote!(#private::Structure::Class(&#private::Class { name: #name, place: #place, fields: &[#(#fields),*] }))
        }
        _ => quote!(#private::Structure::Unknown),
    }
}

/// `let args = args.with("name", &name);`, in the form that the argument's type needs.
fn pass(argument: &Argument, passing: Passing, args: &Ident, facade: &Path) -> TokenStream {
    let Argument { ident, name, ty, form, conditions } = argument;
    let span = generated_at(ty.span());
    let private = private_at(facade, span);
    let value = Ident::new("__skyward_value", Span::mixed_site());
    let with = |value: TokenStream| match (form.bytes, form.borrowed) {
        (true, _) => quote_spanned!(span=> #private::Args::with_bytes(#args, #name, #value)),
        (_, true) => quote_spanned!(span=> #private::Args::with_borrowed(#args, #name, &#value)),
        _ => quote_spanned!(span=> #private::Args::with(#args, #name, &#value)),
    };
    let passed = match (passing, form.optional && (form.bytes || passing == Passing::UnlessNone)) {
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
    quote!(#(#conditions)* let #args = #passed;)
}

/// An error for builds whose `cfg` leaves out an argument that Python requires.
pub(crate) fn required(argument: &Argument, message: &str) -> TokenStream {
    let listed = argument.conditions.iter().filter(|condition| is_condition(condition));
    let conditions: Vec<_> = listed.filter_map(|it| it.meta.require_list().ok()).map(|list| &list.tokens).collect();
    let span = argument.ident.span();
    quote_spanned! {span=>
        #[cfg(not(all(#(#conditions),*)))]
        ::core::compile_error!(#message);
    }
}

/// A span at which messages point, and which lints recognise as generated code.
fn generated_at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The tokens where they are, as generated code.
fn generated(tokens: &impl quote::ToTokens) -> TokenStream {
    let moved = tokens.to_token_stream().into_iter().map(|mut token| {
        if let TokenTree::Group(group) = &token {
            token = Group::new(group.delimiter(), generated(&group.stream())).into();
        }
        token.set_span(generated_at(token.span()));
        token
    });
    moved.collect()
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

/// Whether the attribute decides whether the item exists.
fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

/// Arguments of a function that clippy allows by default.
const MOST_ARGUMENTS: usize = 7;
