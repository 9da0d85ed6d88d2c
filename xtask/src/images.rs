//! The step that makes the images for nodes that are containers.

use anyhow::Result;

use crate::context::Context;
use crate::image::Images;
use crate::step::{Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step { name: "image", about: "the images of nodes that are containers", run: step }]
}

fn step(context: &Context) -> Result<Outcome> {
    Ok(match Images::ensure(context)? {
        Ok(images) => Outcome::passed(format!("{}, {}", images.node, images.bare)),
        Err(reason) => Outcome::skipped(reason),
    })
}
