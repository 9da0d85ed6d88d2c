//! Which launch of its call an instance is. No I/O.
//!
//! All instances of a call have the same tags when EC2 makes them, and EC2 promises no order for their
//! launch indexes: <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Instance.html>. So the
//! order of the answer decides, and the client keeps it: in memory, and in a tag wherever the launch
//! index says something else. Where neither is known, because the answer was lost, the launch index
//! decides as far as it can, and then the id: two processes that list the same instances come to the
//! same result.

use std::collections::{BTreeMap, HashMap, HashSet};

use aws_sdk_ec2::types::Instance;
use skyward_core::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::Machine;

use crate::machines::{self, Life};
use crate::tags;

/// The launch of each machine that this process knows of.
pub(crate) type Known = HashMap<MachineId, LaunchId>;

/// A launch, and the number of its machine.
pub(crate) type Launch = (LaunchId, MachineNumber);

/// Instances with their launches.
#[derive(Debug, Default)]
pub(crate) struct Assigned<'a> {
    pub(crate) found: Vec<Found<'a>>,
    /// Instances that still run, and of whose launch there is another instance.
    pub(crate) surplus: Vec<&'a Instance>,
}

/// An instance with its launch.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) machine: Machine,
    /// Whether its tags and its launch index tell every process which launch it is.
    pub(crate) is_told: bool,
}

/// The instances of a call among which its launches are divided.
struct Group<'a> {
    pool: PoolId,
    launches: Vec<Launch>,
    instances: Vec<Candidate<'a>>,
}

struct Candidate<'a> {
    instance: &'a Instance,
    /// The place of its launch in the call, unless something else decides.
    place: Option<usize>,
    /// The launch that this process remembers, or else the one in its tag.
    fixed: Option<(Source, LaunchId)>,
    /// The place of its launch in the call.
    taken: Option<usize>,
    is_surplus: bool,
}

/// Where the launch of an instance is known from; what comes first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Memory,
    Tag,
}

/// The launches of instances that EC2 lists, by what this process remembers, their tags and their
/// launch indexes. Instances that no launch of Skyward has made are left out.
pub(crate) fn listed<'a>(instances: &'a [Instance], known: &Known) -> Assigned<'a> {
    let mut groups: BTreeMap<(&str, Vec<&str>), Group<'a>> = BTreeMap::new();
    for instance in instances {
        let Some(name) = tags::value(instance.tags(), tags::POOL) else { continue };
        let key = (name, tags::launches_text(instance.tags()).collect());
        let group = groups.entry(key).or_insert_with(|| {
            let pool = PoolId::new(name);
            let launches = tags::launches(instance.tags(), &pool).unwrap_or_default();
            Group { pool, launches, instances: Vec::new() }
        });
        if !group.launches.is_empty() {
            let candidate = Candidate::new(instance, index(instance), &group.pool, known);
            group.instances.push(candidate);
        }
    }
    divide(groups.into_values().collect(), HashSet::new())
}

/// The launches of the instances that EC2 answers a call with: the order of the answer decides where
/// this process remembers nothing else.
pub(crate) fn answered<'a>(
    pool: &PoolId,
    launches: Vec<Launch>,
    instances: &'a [Instance],
    known: &Known,
) -> Assigned<'a> {
    let candidates = instances.iter().enumerate();
    let candidates = candidates.map(|(place, instance)| Candidate::new(instance, Some(place), pool, known)).collect();
    let is_answered = |id: &MachineId| instances.iter().any(|one| one.instance_id() == Some(id.as_str()));
    let elsewhere = known.iter().filter(|(id, _)| !is_answered(id)).map(|(_, launch)| launch.clone()).collect();
    divide(vec![Group { pool: pool.clone(), launches, instances: candidates }], elsewhere)
}

/// Divides the launches of each call among its instances. Launches in `taken` are those of other
/// instances.
fn divide(mut groups: Vec<Group<'_>>, mut taken: HashSet<LaunchId>) -> Assigned<'_> {
    take_known(&mut groups, &mut taken);
    groups.iter_mut().for_each(|group| group.take_rest(&mut taken));
    let mut assigned = Assigned::default();
    for Group { pool, launches, instances } in groups {
        for Candidate { instance, taken, .. } in instances {
            match taken.and_then(|place| launches.get(place)) {
                Some(launch) => {
                    let told = tags::launch(instance.tags(), &pool);
                    let told = told.or_else(|| Some(launches.get(index(instance)?)?.0.clone()));
                    let is_told = told.as_ref() == Some(&launch.0);
                    let Some(machine) = machines::machine(instance, &pool, launch) else { continue };
                    assigned.found.push(Found { instance, machine, is_told });
                }
                None if machines::life(instance) == Life::Running => assigned.surplus.push(instance),
                None => {}
            }
        }
    }
    assigned
}

/// Instances take the launches that they are known to be, in all calls, as a launch may be in several
/// of them. Of two instances with one launch, the one that is remembered keeps it, or else one that
/// runs, or else the older one.
fn take_known(groups: &mut [Group<'_>], taken: &mut HashSet<LaunchId>) {
    let mut fixed = Vec::new();
    for Group { launches, instances, .. } in groups {
        let places: HashMap<&LaunchId, usize> = launches.iter().map(|(launch, _)| launch).zip(0..).collect();
        for one in instances {
            // A tag that names a launch of another call says nothing.
            if let Some((source, launch)) = one.fixed.clone()
                && let Some(place) = places.get(&launch)
            {
                fixed.push((source, launch, *place, one));
            }
        }
    }
    fixed.sort_by_key(|(source, _, _, one)| (*source, one.life(), one.age(), one.id()));
    for (_, launch, place, one) in fixed {
        match taken.insert(launch) {
            true => one.taken = Some(place),
            false => one.is_surplus = true,
        }
    }
}

impl Group<'_> {
    /// The other instances take the launches that are left: each one the launch at its own place, if
    /// that is left, and then in the order of their places and ids. An instance that has ended keeps
    /// its launch, so that the others keep theirs, unless there are more instances than launches.
    fn take_rest(&mut self, taken: &mut HashSet<LaunchId>) {
        let launches = &self.launches;
        let is_free = |place: usize, taken: &HashSet<LaunchId>| {
            launches.get(place).is_some_and(|(launch, _)| !taken.contains(launch))
        };
        let room = (0..launches.len()).filter(|place| is_free(*place, taken)).count();
        let mut rest: Vec<&mut Candidate<'_>> =
            self.instances.iter_mut().filter(|one| one.taken.is_none() && !one.is_surplus).collect();
        rest.sort_by_key(|one| (one.life(), one.order()));
        rest.truncate(room);
        rest.sort_by_key(|one| one.order());
        for one in &mut rest {
            one.taken = one.place.filter(|place| is_free(*place, taken));
            taken.extend(one.taken.map(|place| launches[place].0.clone()));
        }
        let free: Vec<usize> = (0..launches.len()).filter(|place| is_free(*place, taken)).collect();
        for (one, place) in rest.into_iter().filter(|one| one.taken.is_none()).zip(free) {
            taken.insert(launches[place].0.clone());
            one.taken = Some(place);
        }
    }
}

impl<'a> Candidate<'a> {
    fn new(instance: &'a Instance, place: Option<usize>, pool: &PoolId, known: &Known) -> Self {
        let memory = instance.instance_id().and_then(|id| known.get(&MachineId::new(id)));
        let fixed = match memory {
            Some(launch) => Some((Source::Memory, launch.clone())),
            None => tags::launch(instance.tags(), pool).map(|launch| (Source::Tag, launch)),
        };
        Self { instance, place, fixed, taken: None, is_surplus: false }
    }

    fn life(&self) -> Life {
        machines::life(self.instance)
    }

    fn age(&self) -> Option<i64> {
        self.instance.launch_time().map(|time| time.secs())
    }

    fn id(&self) -> &'a str {
        self.instance.instance_id().unwrap_or_default()
    }

    fn order(&self) -> (usize, &'a str) {
        (self.place.unwrap_or(usize::MAX), self.id())
    }
}

/// The launch index of an instance.
fn index(instance: &Instance) -> Option<usize> {
    instance.ami_launch_index().and_then(|index| usize::try_from(index).ok())
}

#[cfg(test)]
mod tests;
