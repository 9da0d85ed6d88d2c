//! The XML of EC2's answers: elements with a text or with children, never both.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// An element with a text.
    pub(crate) fn leaf(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::new(name) }
    }

    /// Adds children.
    pub(crate) fn with(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// The root of EC2's answer to an action.
    pub(crate) fn answer(action: &str) -> Self {
        let namespace = ("xmlns".to_owned(), "http://ec2.amazonaws.com/doc/2016-11-15/".to_owned());
        let root = Self { attributes: vec![namespace], ..Self::new(format!("{action}Response")) };
        root.with([Self::leaf("requestId", "59dbff89-35bd-4eac-99ed-be587EXAMPLE")])
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Element> = Vec::new();
        loop {
            let event = reader.read_event().context("the answer is no XML")?;
            let closed = match event {
                Event::Start(start) => {
                    open.push(Self::started(&start)?);
                    None
                }
                Event::Empty(start) => Some(Self::started(&start)?),
                Event::Text(text) => {
                    if let Some(element) = open.last_mut() {
                        element.text += &text.decode()?;
                    }
                    None
                }
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref()?;
                    let name = reference.decode()?;
                    let Some(element) = open.last_mut() else { continue };
                    match (character, resolve_predefined_entity(&name)) {
                        (Some(character), _) => element.text.push(character),
                        (None, Some(text)) => element.text += text,
                        (None, None) => bail!("the answer names the entity {name}, which XML does not know"),
                    }
                    None
                }
                Event::CData(data) => {
                    if let Some(element) = open.last_mut() {
                        element.text += &data.decode()?;
                    }
                    None
                }
                Event::End(_) => open.pop(),
                Event::Eof => bail!("the answer ends within an element"),
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_) => None,
            };
            if let Some(mut closed) = closed {
                if !closed.children.is_empty() {
                    closed.text.clear();
                }
                match open.last_mut() {
                    Some(parent) => parent.children.push(closed),
                    None => return Ok(closed),
                }
            }
        }
    }

    fn started(start: &BytesStart<'_>) -> Result<Self> {
        let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        let attributes = start.attributes().map(|attribute| {
            let attribute = attribute?;
            let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            anyhow::Ok((key, attribute.unescape_value()?.into_owned()))
        });
        Ok(Self { attributes: attributes.collect::<Result<_>>()?, ..Self::new(name) })
    }

    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(crate) fn child_mut(&mut self, name: &str) -> Option<&mut Element> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// The text at the end of a path of names, empty where there is none.
    pub(crate) fn at(&self, path: &[&str]) -> &str {
        let found = path.iter().try_fold(self, |element, name| element.child(name));
        found.map_or("", |element| element.text.as_str())
    }

    /// The elements of a list, which is a child of this.
    pub(crate) fn items(&self, list: &str) -> impl Iterator<Item = &Element> {
        self.child(list).into_iter().flat_map(|list| &list.children)
    }

    /// Adds a child, in place of those with the same name.
    pub(crate) fn put(&mut self, child: Element) {
        self.take(&child.name.clone());
        self.children.push(child);
    }

    /// Removes the children of a name.
    pub(crate) fn take(&mut self, name: &str) {
        self.children.retain(|child| child.name != name);
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"{}\"", escape(value))?;
        }
        write!(f, ">{}", escape(&self.text))?;
        for child in &self.children {
            child.fmt(f)?;
        }
        write!(f, "</{}>", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parsed_is_written_as_it_was() {
        let text = r#"<?xml version="1.0"?>
            <R xmlns="http://x/"><set><item><a>1 &lt; 2 &amp; &#51;</a><b/></item><item><a>two</a></item></set></R>"#;
        let mut root = Element::parse(text).unwrap();
        assert_eq!(root.items("set").map(|item| item.at(&["a"])).collect::<Vec<_>>(), ["1 < 2 & 3", "two"]);
        assert_eq!(Element::parse(&root.to_string()).unwrap(), root);
        root.put(Element::leaf("set", "none"));
        assert_eq!(root.to_string(), r#"<R xmlns="http://x/"><set>none</set></R>"#);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        for text in ["<a><b></b>", "", "<a>&nothing;</a>"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }
}
