//! Diagrams: pictures that are made of the text beside them, in the language pikchr.

use std::fs;

use anyhow::{Context as _, Result, bail};
use pikchr::{Pikchr, PikchrFlags};

use super::generated::Generated;
use crate::context::Context;

/// The picture of each diagram, beside its text.
pub(super) fn pictures(context: &Context) -> Result<Vec<Generated>> {
    let mut pictures = Vec::new();
    for entry in fs::read_dir(context.root.join(FOLDER))?.flatten() {
        let source = entry.path();
        if source.extension().is_some_and(|extension| extension == "pikchr") {
            let text = picture(&fs::read_to_string(&source)?).with_context(|| source.display().to_string())?;
            pictures.push(Generated { path: source.with_extension("svg"), text });
        }
    }
    pictures.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pictures)
}

/// Draws a diagram on a light ground of its own, since the page around it may be dark.
fn picture(source: &str) -> Result<String> {
    let drawn = match Pikchr::render(source, None, *PikchrFlags::default().generate_plain_errors()) {
        Ok(drawn) => drawn.to_string(),
        Err(error) => bail!("pikchr does not understand the diagram:\n{error}"),
    };
    let Some((head, body)) = drawn.split_once('>') else { bail!("pikchr drew nothing") };
    let head = head.replacen("<svg", "<svg font-family='Helvetica, Arial, sans-serif' font-size='15'", 1);
    Ok(format!("{head}>\n<rect width='100%' height='100%' rx='6' fill='#fdfdfb'/>\n{}\n", body.trim_end()))
}

/// Where the diagrams are.
pub(super) const FOLDER: &str = "docs/diagrams";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagram_has_a_ground_and_a_wrong_one_is_refused() {
        let drawn = picture("box \"client\"").unwrap();
        assert!(drawn.starts_with("<svg ") && drawn.contains("fill='#fdfdfb'") && drawn.contains(">client</text>"));
        assert!(picture("bxo").unwrap_err().to_string().contains("bxo"));
    }
}
