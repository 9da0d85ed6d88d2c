//! Pages of long answers.
//!
//! AWS documents: by default, DescribeInstances returns at most 1,000 instances and
//! DescribeInstanceTypes at most 100 types, with a `NextToken` for the rest. moto counts
//! reservations instead of instances, and returns all types at once.

use crate::proxy::{Call, Reply};
use crate::xml::Element;

/// Reduces a list to the page that the call asks for. Returns the refusal of a token that no page
/// has returned.
pub(crate) fn cut(
    root: &mut Element,
    list: &str,
    most: usize,
    call: &Call,
    weight: impl Fn(&Element) -> usize,
) -> Option<Reply> {
    let asked = call.get("MaxResults").parse::<usize>().unwrap_or(most).clamp(1, most);
    let begin = match call.get("NextToken") {
        "" => Some(0),
        token => token.strip_prefix(TOKEN).and_then(|number| number.parse::<usize>().ok()),
    };
    let Some(begin) = begin else {
        let message = "Value for parameter NextToken is invalid. Unable to parse token";
        return Some(Reply::error(call, 400, "InvalidParameterValue", message));
    };
    let items = root.child_mut(list)?;
    items.children.drain(..begin.min(items.children.len()));
    let mut taken = 0;
    let mut end = 0;
    // Items that belong together, such as those of a reservation, stay on one page.
    while end < items.children.len() && taken < asked {
        taken += weight(&items.children[end]);
        end += 1;
    }
    let is_last = end == items.children.len();
    items.children.truncate(end);
    root.take("nextToken");
    if !is_last {
        root.put(Element::leaf("nextToken", format!("{TOKEN}{}", begin + end)));
    }
    None
}

const TOKEN: &str = "page-";

#[cfg(test)]
mod tests {
    use super::*;

    fn page(max: &str, token: &str) -> Option<(Vec<String>, String)> {
        let items = ["a", "b", "c", "d", "e"].map(|name| Element::leaf("item", name));
        let mut root = Element::new("R").with([Element::new("set").with(items)]);
        let parameters = [("MaxResults", max), ("NextToken", token)];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (service, region, action, body) = Default::default();
        let call = Call { service, region, action, parameters, body };
        let refusal = cut(&mut root, "set", 3, &call, |_| 1);
        refusal
            .is_none()
            .then(|| (root.items("set").map(|item| item.text.clone()).collect(), root.at(&["nextToken"]).to_owned()))
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        assert_eq!(page("2", "").unwrap(), (vec!["a".into(), "b".into()], "page-2".into()));
        assert_eq!(page("2", "page-2").unwrap(), (vec!["c".into(), "d".into()], "page-4".into()));
        assert_eq!(page("2", "page-4").unwrap(), (vec!["e".into()], String::new()));
        assert_eq!(page("", "").unwrap().0.len(), 3);
        assert_eq!(page("100", "").unwrap().0.len(), 3);
        assert_eq!(page("", "nonsense"), None);
    }
}
