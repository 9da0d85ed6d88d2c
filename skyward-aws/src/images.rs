//! The machine images (AMIs) that machines start from.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::{self, ArchitectureValues, Filter, ImageState};
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::provider::Architecture;
use skyward_core::spec::AcceleratorFamily;

use crate::errors;
use crate::partition::Partition;

/// Which image machines start from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ImageChoice {
    /// This one: `ami-…`.
    Id(String),
    /// AWS's Deep Learning image with the driver of the accelerators; for machines without
    /// accelerators, the one with NVIDIA's driver.
    DeepLearning,
    /// Canonical's Ubuntu, without drivers of accelerators.
    Ubuntu,
    /// Deep Learning for accelerators, Ubuntu otherwise.
    #[default]
    Auto,
}

/// An image that machines can start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) architecture: Architecture,
    /// The name of the root disk, which differs between images: `/dev/sda1`.
    pub(crate) root_device: String,
    /// The devices of its further disks.
    pub(crate) more_devices: Vec<String>,
    /// The least size of the root disk.
    pub(crate) snapshot_gib: u32,
    /// The user to log in as.
    pub(crate) user: String,
}

/// What an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose<'a> {
    pub(crate) architecture: Architecture,
    /// The family of the machine's accelerators, if it has any.
    pub(crate) accelerators: Option<AcceleratorFamily>,
    pub(crate) region: &'a str,
    /// The user to log in as, where the image's name does not decide it.
    pub(crate) user: Option<&'a str>,
}

/// A line of images: their owner, and the start of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    owner: Owner,
    /// The name without the date at its end.
    name: &'static str,
}

/// Who owns a line of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Amazon,
    Canonical,
}

impl Owner {
    /// The account number in this region, because anybody can give an image any name; none where it
    /// is not known.
    fn account(self, region: &str) -> Option<&'static str> {
        match self {
            Self::Amazon => Partition::of(region).deep_learning(),
            Self::Canonical => Some(Partition::of(region).canonical()),
        }
    }
}

impl Image {
    /// Finds the image by its id, or the newest one of its line.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for an image that does not exist or does not fit;
    /// [`ErrorKind::Provider`] where EC2 cannot be asked, or has none in this region.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub(crate) async fn resolve(ec2: &Client, choice: &ImageChoice, purpose: Purpose<'_>) -> Result<Self> {
        if let ImageChoice::Id(id) = choice {
            return by_id(ec2, id, purpose).await;
        }
        let line = Line::of(choice, purpose)?;
        let owner = line.owner.account(purpose.region).ok_or_else(|| no_deep_learning(purpose.region))?;
        let mut pages = ec2
            .describe_images()
            .owners(owner)
            .filters(filter("name", &format!("{}*", line.name)))
            .filters(filter("architecture", name_of(purpose.architecture)))
            .filters(filter("state", "available"))
            .into_paginator()
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            found.extend_from_slice(errors::called("DescribeImages", page)?.images());
        }
        newest(&found, line, purpose).ok_or_else(|| {
            Error::new(
                ErrorKind::Provider,
                format!(
                    "{} has no image `{}*` of the owner {} for {}",
                    purpose.region, line.name, owner, purpose.architecture
                ),
            )
            .with_hint("name an image of this region by its id; `aws ec2 describe-images` lists them")
        })
    }

    /// The size of the root disk: what the pool asks for, but at least the size of the image.
    pub(crate) fn disk_gib(&self, asked: u32) -> u32 {
        asked.max(self.snapshot_gib)
    }
}

impl Line {
    fn of(choice: &ImageChoice, purpose: Purpose<'_>) -> Result<Self> {
        use AcceleratorFamily::{Neuron, Nvidia};
        use Architecture::{Aarch64, X86_64};

        let Purpose { architecture, accelerators, .. } = purpose;
        let with_driver = !matches!((choice, accelerators), (ImageChoice::Ubuntu, _) | (ImageChoice::Auto, None));
        match (with_driver, architecture, accelerators) {
            (false, X86_64, _) => Ok(UBUNTU),
            (false, Aarch64, _) => Ok(UBUNTU_ARM),
            (true, X86_64, None | Some(Nvidia)) => Ok(NVIDIA),
            (true, Aarch64, None | Some(Nvidia)) => Ok(NVIDIA_ARM),
            (true, X86_64, Some(Neuron)) => Ok(NEURON),
            (_, architecture, family) => {
                let accelerators = family.map(|family| format!(" and accelerators of {family}")).unwrap_or_default();
                Err(Error::new(
                    ErrorKind::InvalidSpec,
                    format!("there is no line of images for {architecture}{accelerators}"),
                )
                .with_hint("name an image with the driver by its id"))
            }
        }
    }
}

async fn by_id(ec2: &Client, id: &str, purpose: Purpose<'_>) -> Result<Image> {
    // A deprecated image still starts machines, and the user has named it by its id.
    let answer = ec2.describe_images().image_ids(id).include_deprecated(true).send().await;
    let code = answer.as_ref().err().and_then(|error| error.code()).unwrap_or_default();
    if code.starts_with("InvalidAMIID") {
        return Err(absent(id, purpose.region));
    }
    let answer = errors::called("DescribeImages", answer)?;
    let found = answer.images().iter().find(|image| image.image_id() == Some(id));
    checked(found.ok_or_else(|| absent(id, purpose.region))?, purpose)
}

fn no_deep_learning(region: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("the owner of the Deep Learning images in {region} is not known"))
        .with_hint("name an image with the driver by its id, `.image(\"ami-…\")`")
}

fn absent(id: &str, region: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("there is no image {id} in {region} that this account may use"))
        .with_hint("an image has another id in each region: copy it to this region, share it with the account, or leave it out to take the newest Deep Learning image")
}

/// The image that the user named, if machines can start from it.
fn checked(image: &types::Image, purpose: Purpose<'_>) -> Result<Image> {
    let id = image.image_id().unwrap_or_default();
    let name = image.name().unwrap_or_default();
    let refuse = |why: String, hint: &str| {
        Err(Error::new(ErrorKind::InvalidSpec, format!("no machine can start from the image {id} ({name}): {why}"))
            .with_hint(hint))
    };
    if image.state() != Some(&ImageState::Available) {
        let state = image.state().map_or("not known", ImageState::as_str);
        return refuse(format!("its state is {state}"), "wait until it is available, or name another");
    }
    let has = image.architecture().map_or("an unknown architecture", ArchitectureValues::as_str);
    let wanted = name_of(purpose.architecture);
    if has != wanted {
        return refuse(
            format!("it is for {has}, and the machines have {wanted}"),
            "name an image of the machines' architecture, or request machines of the image's architecture",
        );
    }
    match read(image, purpose) {
        Some(image) => Ok(image),
        None => refuse("it has no root disk".to_owned(), "name one whose root device is a disk of EBS"),
    }
}

/// The newest image of a line.
fn newest(images: &[types::Image], line: Line, purpose: Purpose<'_>) -> Option<Image> {
    images
        .iter()
        // The owner is checked again, because an image of another owner would run as root with the
        // user's data.
        .filter(|image| image.owner_id().is_some() && image.owner_id() == line.owner.account(purpose.region))
        .filter(|image| image.name().is_some_and(|name| name.starts_with(line.name)))
        .filter(|image| image.state() == Some(&ImageState::Available))
        .filter(|image| image.architecture().map(ArchitectureValues::as_str) == Some(name_of(purpose.architecture)))
        .filter_map(|image| Some((image.creation_date()?, image.image_id()?, read(image, purpose)?)))
        // All dates have the same ISO 8601 form, so they sort as text.
        .max_by(|(date, id, _), (other, other_id, _)| (date, id).cmp(&(other, other_id)))
        .map(|(_, _, image)| image)
}

/// None where the image has no root disk.
fn read(image: &types::Image, purpose: Purpose<'_>) -> Option<Image> {
    let root_device = image.root_device_name().filter(|device| !device.is_empty())?;
    let mapping = image.block_device_mappings().iter().find(|one| one.device_name() == Some(root_device))?;
    let size = mapping.ebs()?.volume_size().unwrap_or(0);
    let others = image.block_device_mappings().iter().filter(|one| one.ebs().is_some());
    let others = others.filter_map(|one| one.device_name()).filter(|device| *device != root_device);
    let name = image.name().unwrap_or_default();
    Some(Image {
        id: image.image_id()?.to_owned(),
        name: name.to_owned(),
        architecture: purpose.architecture,
        root_device: root_device.to_owned(),
        more_devices: others.map(str::to_owned).collect(),
        snapshot_gib: u32::try_from(size).unwrap_or(0),
        user: purpose.user.unwrap_or_else(|| user_of(name)).to_owned(),
    })
}

/// The user to log in as, by the image's name.
fn user_of(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let is_amazon = name.starts_with("al2023-ami") || name.starts_with("amzn") || name.contains("amazon linux");
    if is_amazon { "ec2-user" } else { "ubuntu" }
}

/// The architecture as EC2 writes it.
fn name_of(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Aarch64 => "arm64",
        _ => "x86_64",
    }
}

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

const NVIDIA: Line =
    Line { owner: Owner::Amazon, name: "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) " };
const NVIDIA_ARM: Line =
    Line { owner: Owner::Amazon, name: "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) " };
const NEURON: Line = Line { owner: Owner::Amazon, name: "Deep Learning AMI Neuron (Ubuntu 24.04) " };
const UBUNTU: Line =
    Line { owner: Owner::Canonical, name: "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-" };
const UBUNTU_ARM: Line =
    Line { owner: Owner::Canonical, name: "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-" };

#[cfg(test)]
mod tests;
