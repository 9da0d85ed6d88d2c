//! DescribeInstanceTypes in pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::{Backend, Original, pages};
use crate::proxy::{Call, Reply};
use crate::xml::Element;

/// moto's answer with all types. It is kept, because every page needs it and moto takes a second
/// for it.
#[derive(Debug, Default)]
pub(crate) struct Types(Mutex<HashMap<BTreeMap<String, String>, Arc<Element>>>);

pub(crate) async fn describe(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let mut question = call.parameters.clone();
    question.remove("NextToken");
    question.remove("MaxResults");
    let is_later_page = !call.get("NextToken").is_empty();
    let known = backend.types.0.lock().unwrap_or_else(PoisonError::into_inner).get(&question).cloned();
    let whole = match known.filter(|_| is_later_page) {
        Some(whole) => whole,
        None => {
            let reply = backend.forward(original).await?;
            if !reply.is_success() {
                return Ok(reply);
            }
            let whole = Arc::new(reply.parse()?);
            backend.types.0.lock().unwrap_or_else(PoisonError::into_inner).insert(question, Arc::clone(&whole));
            whole
        }
    };
    let mut root = (*whole).clone();
    let most = backend.settings().page.unwrap_or(TYPES);
    let refusal = pages::cut(&mut root, "instanceTypeSet", most, call, |_| 1);
    Ok(refusal.unwrap_or_else(|| Reply::xml(&root)))
}

/// The largest page of EC2.
const TYPES: usize = 100;
