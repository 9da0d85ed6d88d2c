//! The Rust function with the attribute.

use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;
use syn::{
    Attribute, Block, Expr, ExprLit, FnArg, GenericArgument, GenericParam, Ident, Lifetime, Lit, LitStr, Pat,
    PathArguments, ReturnType, Stmt, Token, Type, TypeReference, Visibility,
};

use crate::diagnostic::{Anchor, Diagnostic, Errors};

/// A function as it is written: with a body or without.
pub(crate) struct Declaration {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: syn::Signature,
    pub(crate) body: Body,
}

/// What follows the signature.
pub(crate) enum Body {
    /// `;`
    None,
    /// `{ "…" }`: Python.
    Python(LitStr),
    /// `{ … }`: Rust.
    Rust(Box<Block>),
}

/// A checked signature.
pub(crate) struct Signature {
    pub(crate) name: Ident,
    pub(crate) arguments: Vec<Argument>,
    /// The type of the result, without `Payload<…>`.
    pub(crate) output: Type,
    pub(crate) result: ResultForm,
}

/// An argument, which travels by its name.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    /// The name in Python.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) form: ArgumentForm,
    /// `#[cfg(…)]`: whether it is there.
    pub(crate) conditions: Vec<Attribute>,
}

/// How an argument is passed to the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArgumentForm {
    /// `Option<…>`: None may be left to Python's default.
    pub(crate) optional: bool,
    /// Whether it, or part of it, is borrowed.
    pub(crate) borrowed: bool,
    /// `&[u8]`, which goes as bytes and not as a list.
    pub(crate) bytes: bool,
}

/// What a result type says about the Python function, as far as the type's name is unambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultForm {
    /// `()`.
    Unit,
    /// `Option<…>`.
    Option,
    /// A type of Rust's own that is no stream.
    Value,
    /// Anything else: a stream, or an alias of any of these.
    Unknown,
}

impl Declaration {
    /// Checks everything that holds whatever the Python source is.
    pub(crate) fn check(&self) -> syn::Result<Signature> {
        let mut errors = Errors::default();
        let signature = &self.signature;
        if let Some(token) = signature.asyncness {
            errors.at(token.span, "the function only describes the call; you await its dispatch: remove `async`");
        }
        if let Some(token) = signature.constness {
            errors.at(token.span, "a payload runs on a worker, not in the compiler: remove `const`");
        }
        if let Some(token) = signature.unsafety {
            errors.at(token.span, "a payload is Python: remove `unsafe`");
        }
        if let Some(abi) = &signature.abi {
            errors.at(abi.extern_token.span, "a payload is Python: remove `extern`");
        }
        if let Some(variadic) = &signature.variadic {
            errors
                .push(syn::Error::new_spanned(variadic, "Skyward passes arguments by name: give each of them a name"));
        }
        let arguments = signature.inputs.iter().filter_map(|input| argument(input, &self.body, &mut errors)).collect();
        self.check_generics(&mut errors);
        let output = self.output(&mut errors);
        let result = form_of_result(&output);
        errors.finish(Signature { name: signature.ident.clone(), arguments, output, result })
    }

    fn output(&self, errors: &mut Errors) -> Type {
        let ReturnType::Type(_, ty) = &self.signature.output else { return syn::parse_quote!(()) };
        let written = last_segment(ty).map(|segment| segment.ident.to_string());
        match (written.as_deref(), &self.body) {
            (Some("Payload"), Body::Rust(_)) => match inner(ty) {
                Some(inner) => return inner.clone(),
                None => errors.push(syn::Error::new_spanned(ty, "name the result type: `Payload<T>`")),
            },
            (_, Body::Rust(_)) => errors.push(syn::Error::new_spanned(
                ty,
                "a Rust body puts a payload together: write `-> Payload<T>`\n\
                 or give the Python source: a body that is one string literal, or `python = \"….py\"` and no body",
            )),
            (Some("Payload"), _) => errors.push(syn::Error::new_spanned(
                ty,
                "`Payload<T>` is what a Rust body returns; a function with Python source returns `T` itself",
            )),
            (Some("PendingCompute"), _) => errors.push(syn::Error::new_spanned(
                ty,
                "write the result itself, `-> T`: the attribute makes it a `PendingCompute<T>`",
            )),
            _ => {}
        }
        match &**ty {
            Type::ImplTrait(ty) => errors.push(syn::Error::new_spanned(
                ty,
                "the result must have a name, because Skyward deserialises it: write a type that implements `serde::Deserialize`",
            )),
            Type::Never(ty) => {
                errors.push(syn::Error::new_spanned(ty, "a payload must return: leave the result type out, or write `()`"));
            }
            _ => {}
        }
        (**ty).clone()
    }

    fn check_generics(&self, errors: &mut Errors) {
        let mut used = Names::default();
        self.signature.inputs.iter().for_each(|input| used.visit_fn_arg(input));
        used.visit_return_type(&self.signature.output);
        for parameter in &self.signature.generics.params {
            let (ident, kind) = match parameter {
                GenericParam::Type(parameter) => (&parameter.ident, "type"),
                GenericParam::Const(parameter) => (&parameter.ident, "constant"),
                GenericParam::Lifetime(_) => continue,
            };
            if !used.0.contains(ident) {
                let message = format!(
                    "the {kind} parameter `{ident}` is used by no argument and not by the result, and Python does not see it: remove it"
                );
                errors.at(ident.span(), message);
            }
        }
    }
}

impl Signature {
    /// A message at the part that it is about.
    pub(crate) fn error(
        &self,
        found: &Diagnostic,
        source: &LitStr,
        entry: Option<&LitStr>,
        main: Option<&LitStr>,
    ) -> syn::Error {
        let span = match found.anchor {
            Anchor::Source => source.span(),
            Anchor::Main => main.unwrap_or(source).span(),
            Anchor::Entry => entry.map_or_else(|| self.name.span(), LitStr::span),
            Anchor::Name => self.name.span(),
            Anchor::Argument(index) => {
                self.arguments.get(index).map_or(source.span(), |argument| argument.ident.span())
            }
            Anchor::ArgumentType(index) => {
                return self.arguments.get(index).map_or_else(
                    || syn::Error::new(source.span(), &found.message),
                    |argument| syn::Error::new_spanned(&argument.ty, &found.message),
                );
            }
            Anchor::Output if self.result == ResultForm::Unit => self.name.span(),
            Anchor::Output => return syn::Error::new_spanned(&self.output, &found.message),
        };
        syn::Error::new(span, &found.message)
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility: Visibility = input.parse()?;
        let signature = input.fork().parse::<syn::Signature>().map_err(|error| {
            if input.peek(Token![fn]) || input.peek2(Token![fn]) {
                return error;
            }
            syn::Error::new(input.span(), "`#[compute]` declares a function: put it on a `fn`")
        })?;
        input.parse::<syn::Signature>()?;
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            return Ok(Self { attributes, visibility, signature, body: Body::None });
        }
        let block: Block = input.parse()?;
        let text = match block.stmts.as_slice() {
            [Stmt::Expr(only, _)] => text_of(only),
            _ => None,
        };
        let body = text.cloned().map_or_else(|| Body::Rust(Box::new(block)), Body::Python);
        Ok(Self { attributes, visibility, signature, body })
    }
}

/// The string literal that an expression is. What a `macro_rules!` passes on stands in an invisible
/// group.
fn text_of(expression: &Expr) -> Option<&LitStr> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), attrs }) if attrs.is_empty() => Some(text),
        Expr::Group(group) if group.attrs.is_empty() => text_of(&group.expr),
        _ => None,
    }
}

/// The argument if it is one that can travel.
fn argument(input: &FnArg, body: &Body, errors: &mut Errors) -> Option<Argument> {
    let typed = match input {
        FnArg::Receiver(receiver) => {
            let message = "a payload has no `self`: remove it, and pass what the Python needs as arguments\n\
                           in an `impl` block, a payload is an associated function: `Trainer::train(5)`";
            errors.push(syn::Error::new_spanned(receiver, message));
            return None;
        }
        FnArg::Typed(typed) => typed,
    };
    let ident = match &*typed.pat {
        Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
            if let (Some(token), Body::None | Body::Python(_)) = (pattern.mutability, body) {
                errors.at(token.span, "the argument goes to Python as it is: remove `mut`");
            }
            pattern.ident.clone()
        }
        // A Rust body may take its arguments as it likes.
        _ if matches!(body, Body::Rust(_)) => return None,
        pattern => {
            let message = "Skyward passes arguments by name: write `name: Type`";
            errors.push(syn::Error::new_spanned(pattern, message));
            return None;
        }
    };
    let ty = (*typed.ty).clone();
    let form = form_of_argument(&ty);
    let is_condition = |attribute: &&Attribute| ["cfg", "cfg_attr"].iter().any(|name| attribute.path().is_ident(name));
    let conditions: Vec<Attribute> = typed.attrs.iter().filter(is_condition).cloned().collect();
    if let (Body::Python(_), Some(condition)) = (body, conditions.first()) {
        let message = "`#[cfg]` on an argument would give the Python body other names: put it on the function\n\
                       or write the Python in a file, where the parameter has a default";
        errors.push(syn::Error::new_spanned(condition, message));
    }
    Some(Argument { name: ident.unraw().to_string(), ident, ty, form, conditions })
}

fn form_of_argument(ty: &Type) -> ArgumentForm {
    let optional = last_segment(ty).is_some_and(|segment| segment.ident == "Option") && inner(ty).is_some();
    let value = if optional { inner(ty).unwrap_or(ty) } else { ty };
    let mut borrows = Borrows(false);
    borrows.visit_type(ty);
    ArgumentForm { optional, borrowed: borrows.0, bytes: is_borrowed_bytes(value) }
}

fn is_borrowed_bytes(ty: &Type) -> bool {
    let Type::Reference(TypeReference { elem, .. }) = ty else { return false };
    let element = match &**elem {
        Type::Slice(slice) => Some(&*slice.elem),
        Type::Array(array) => Some(&*array.elem),
        path if last_segment(path).is_some_and(|segment| segment.ident == "Vec") => inner(path),
        _ => None,
    };
    element.is_some_and(|element| element.to_token_stream().to_string() == "u8")
}

fn form_of_result(ty: &Type) -> ResultForm {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => ResultForm::Unit,
        Type::Tuple(_) | Type::Array(_) => ResultForm::Value,
        Type::Path(path) if path.qself.is_some() => ResultForm::Unknown,
        _ => match last_segment(ty) {
            Some(segment) if segment.ident == "Option" => ResultForm::Option,
            Some(segment) if VALUES.iter().any(|name| segment.ident == name) => ResultForm::Value,
            _ => ResultForm::Unknown,
        },
    }
}

pub(crate) fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Paren(paren) => last_segment(&paren.elem),
        Type::Group(group) => last_segment(&group.elem),
        _ => None,
    }
}

/// The `T` of `Name<T>`.
pub(crate) fn inner(ty: &Type) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &last_segment(ty)?.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// Types that are not made up by anyone else under these names.
const VALUES: [&str; 19] = [
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128",
    "usize", "String", "Vec", "HashMap",
];

/// Looks for references and lifetimes.
struct Borrows(bool);

impl<'ast> Visit<'ast> for Borrows {
    fn visit_type_reference(&mut self, _: &'ast TypeReference) {
        self.0 = true;
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.0 |= lifetime.ident != "static";
    }
}

/// Collects all identifiers.
#[derive(Default)]
struct Names(Vec<Ident>);

impl<'ast> Visit<'ast> for Names {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.push(ident.clone());
    }
}

#[cfg(test)]
mod tests;
