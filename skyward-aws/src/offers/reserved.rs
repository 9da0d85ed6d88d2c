//! The single offer of reserved capacity: its type in its zone.

use std::time::SystemTime;

use skyward_core::error::{Error, Refusal, Result};
use skyward_core::ids::OfferId;
use skyward_core::provider::{Market, Offer, Requirements};

use super::fit::{devices, offer_of};
use super::{Setting, Sources};
use crate::capacity::Reserved;
use crate::catalog::instance_type::InstanceType;
use crate::prices::Price;

/// The offer for these requirements in reserved capacity.
///
/// # Errors
///
/// [`Refusal::Misconfigured`] when the reservation contradicts other settings of the pool;
/// [`Refusal::NotOffered`] when its type does not meet the requirements.
///
/// # Cancel safety
///
/// Starts nothing.
pub(crate) async fn reserved(
    sources: Sources<'_>,
    setting: &Setting,
    requirements: &Requirements,
    reserved: &Reserved,
    now: SystemTime,
) -> Result<Offer> {
    check(setting, requirements, reserved)?;
    let Reserved { id, instance_type: name, .. } = reserved;
    let instance_type = sources.catalog.one(name).await?.ok_or_else(|| {
        Error::refused(Refusal::NotOffered, format!("{id} is of {name}, which EC2 does not list in {}", setting.region))
            .with_hint("name capacity of another type")
    })?;
    let price = match reserved.is_block {
        true => None,
        false => sources.on_demand.prices(&[name.as_str()], now).await.remove(name),
    };
    offer(&instance_type, setting, requirements, reserved, price)
}

/// Checks what does not depend on the type.
fn check(setting: &Setting, requirements: &Requirements, reserved: &Reserved) -> Result<()> {
    let Reserved { id, zone, .. } = reserved;
    if requirements.market == Market::Spot {
        let message = format!("spot instances are not launched in reserved capacity such as {id}");
        return Err(Error::refused(Refusal::Misconfigured, message)
            .with_hint("ask for `Market::OnDemand`, or leave the reservation out"));
    }
    if !setting.zones.contains(zone) {
        let zones = Vec::from_iter(setting.zones.iter().map(String::as_str)).join(", ");
        let message = format!("{id} is in {zone}, where no subnet of the pool lies: they lie in {zones}");
        return Err(Error::refused(Refusal::Misconfigured, message)
            .with_hint(format!("name a subnet in {zone}: `.subnets([…])`")));
    }
    Ok(())
}

/// The offer, where the type meets the requirements.
///
/// AWS bills a reservation at the on-demand price, whether it is used or not. A block is paid for
/// when it is bought, and costs nothing by the hour.
fn offer(
    instance_type: &InstanceType,
    setting: &Setting,
    requirements: &Requirements,
    reserved: &Reserved,
    price: Option<Price>,
) -> Result<Offer> {
    let Reserved { id, instance_type: name, zone, is_block, .. } = reserved;
    let offer = offer_of(instance_type, zone, requirements, setting)
        .id(OfferId::new(format!("{name}/{zone}/{id}")))
        .usd_per_hour(if *is_block { Some(0.0) } else { price.map(|price| price.usd_per_hour) })
        .priced_at(price.map(|price| price.read_at));
    let refused = |why: String| {
        let message = format!("{id} is of {name} in {zone}, which {why}");
        Err(Error::refused(Refusal::NotOffered, message)
            .with_hint("change the requirements to what this type has, name another reservation, or remove the option"))
    };
    if let Some(wanted) = &requirements.accelerator
        && let Err((_, words)) = devices(instance_type, wanted, setting)
    {
        return refused(words);
    }
    match requirements.unmet_by(&offer) {
        unmet if unmet.is_empty() => Ok(offer),
        unmet => refused(format!("does not have {}", unmet.join(" and "))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skyward_core::provider::Architecture;
    use skyward_core::spec::Accelerator;

    use super::*;
    use crate::catalog::instance_type::Devices;
    use crate::offers::fit::tests::setting;

    fn instance_type(accelerator: Option<Accelerator>) -> InstanceType {
        InstanceType {
            name: "p5.48xlarge".into(),
            cpus: 192,
            memory_gib: 2048,
            architecture: Architecture::X86_64,
            devices: accelerator.map_or(Devices::Nothing, Devices::Accelerators),
            on_demand: false,
            spot: false,
            capacity_block: true,
            efa_interfaces: 0,
            current_generation: false,
            bare_metal: true,
            burstable: true,
            instance_storage_gib: 0,
        }
    }

    fn within(is_block: bool) -> Reserved {
        let zone = setting().zones.first().unwrap().clone();
        Reserved { id: "cr-1".into(), instance_type: "p5.48xlarge".into(), zone, is_block, ends: None }
    }

    fn made(requirements: &Requirements, accelerator: Option<Accelerator>, is_block: bool) -> Result<Offer> {
        let price = Price { usd_per_hour: 98.32, read_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1) };
        let reserved = within(is_block);
        check(&setting(), requirements, &reserved)?;
        let price = (!is_block).then_some(price);
        offer(&instance_type(accelerator), &setting(), requirements, &reserved, price)
    }

    fn h100() -> Option<Accelerator> {
        Some(Accelerator::new("H100", 8))
    }

    #[test]
    fn any_type_is_offered_on_demand_by_its_reservation_alone() {
        for market in [Market::OnDemand, Market::SpotOrOnDemand, Market::Cheapest] {
            let wanted = Requirements::default().market(market);
            let plain = made(&wanted, h100(), false).unwrap();
            assert!(plain.id.as_str().ends_with("/cr-1") && !plain.spot, "{plain:?}");
            assert_eq!(plain.usd_per_hour, Some(98.32));
            assert!(plain.priced_at.is_some());
            assert_eq!(plain.accelerator, h100());
            let block = made(&wanted, None, true).unwrap();
            assert_eq!(block.usd_per_hour, Some(0.0));
            assert_eq!(block.priced_at, None);
            assert!(!block.spot);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let asks = Requirements::default;
        let gpus = |kind, count| asks().accelerator(Accelerator::new(kind, count));
        for (wanted, accelerator, words, refusal) in [
            (asks().market(Market::Spot), h100(), "spot instances", Refusal::Misconfigured),
            (gpus("T4", 1), h100(), "T4", Refusal::NotOffered),
            (gpus("H100", 1), None, "H100", Refusal::NotOffered),
            (gpus("H100", 16), h100(), "has 8", Refusal::NotOffered),
            (gpus("V100", 8), Some(Accelerator::new("V100", 8)), "driver", Refusal::NotOffered),
            (asks().cpus(193), h100(), "193", Refusal::NotOffered),
            (asks().architecture(Architecture::Aarch64), h100(), "does not have", Refusal::NotOffered),
            (asks().most_usd_per_hour(98.0), h100(), "does not have", Refusal::NotOffered),
            (asks().zones(["nowhere-1a"]), h100(), "nowhere-1a", Refusal::NotOffered),
        ] {
            let error = made(&wanted, accelerator, false).unwrap_err();
            assert!(error.message().contains("cr-1") && error.message().contains(words), "{words}: {error}");
            assert!(error.hint().is_some() && error.refusal() == Some(&refusal), "{words}: {error}");
        }
        let mut far = within(true);
        far.zone = "eu-west-1z".into();
        let error = check(&setting(), &Requirements::default(), &far).unwrap_err();
        assert!(error.message().contains("eu-west-1z, where no subnet") && error.hint().unwrap().contains(".subnets("));
    }
}
