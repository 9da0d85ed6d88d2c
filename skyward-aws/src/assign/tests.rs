use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{InstanceState, InstanceStateName};

use super::*;
use crate::tags::Tags;

/// An instance of a call for the machines 0 to `count` - 1 of the pool `p`.
struct Made {
    id: &'static str,
    index: Option<i32>,
    tag: Option<&'static str>,
    count: u32,
    state: InstanceStateName,
    age: i64,
}

fn made(id: &'static str, index: i32) -> Made {
    Made { id, index: Some(index), tag: None, count: 3, state: InstanceStateName::Running, age: 0 }
}

impl Made {
    fn tagged(self, tag: &'static str) -> Self {
        Self { tag: Some(tag), ..self }
    }

    fn over(self) -> Self {
        Self { state: InstanceStateName::Terminated, ..self }
    }

    fn build(&self) -> Instance {
        let mut all = Tags::from([
            (tags::POOL.to_owned(), "p".to_owned()),
            (tags::LAUNCHES.to_owned(), format!("0+{}=1", self.count)),
        ]);
        all.extend(self.tag.map(|tag| (tags::LAUNCH.to_owned(), tag.to_owned())));
        Instance::builder()
            .instance_id(self.id)
            .set_ami_launch_index(self.index)
            .launch_time(DateTime::from_secs(self.age))
            .state(InstanceState::builder().name(self.state.clone()).build())
            .set_tags(Some(tags::list(&all)))
            .build()
    }
}

fn build<const N: usize>(made: [Made; N]) -> [Instance; N] {
    made.map(|made| made.build())
}

/// `a0 b1` for instance a of machine 0 and b of machine 1; those whose launch the tags do not tell are
/// followed by `!`, and surplus ones by `-` alone.
fn shown(assigned: &Assigned<'_>) -> String {
    let found = assigned.found.iter().map(|Found { machine, is_told, .. }| {
        assert_eq!(machine.launch.as_str(), format!("p-n{}-a1", machine.number.0));
        format!("{}{}{}", machine.id, machine.number.0, if *is_told { "" } else { "!" })
    });
    let surplus = assigned.surplus.iter().map(|one| format!("{}-", one.instance_id().unwrap()));
    let mut all: Vec<String> = found.chain(surplus).collect();
    all.sort();
    all.join(" ")
}

fn listing<const N: usize>(made: [Made; N]) -> String {
    let instances = build(made);
    let there = shown(&listed(&instances, &Known::new()));
    let mut reversed = instances.to_vec();
    reversed.reverse();
    assert_eq!(shown(&listed(&reversed, &Known::new())), there, "the order of a list says nothing");
    there
}

fn launches(count: u32) -> Vec<Launch> {
    (0..count).map(|number| (LaunchId::new(format!("p-n{number}-a1")), MachineNumber(number))).collect()
}

fn answering(instances: &[Instance], known: &Known) -> String {
    shown(&answered(&PoolId::new("p"), launches(3), instances, known))
}

fn known<const N: usize>(pairs: [(&str, u32); N]) -> Known {
    pairs.map(|(id, number)| (MachineId::new(id), LaunchId::new(format!("p-n{number}-a1")))).into()
}

#[test]
fn a_machine_is_what_the_answer_says() {
    assert_eq!(answering(&build([made("a", 0), made("b", 1), made("c", 2)]), &Known::new()), "a0 b1 c2");
    assert_eq!(answering(&build([made("c", 2), made("b", 1), made("a", 0)]), &Known::new()), "a2! b1 c0!");
    assert_eq!(answering(&build([made("a", 0), made("b", 0), made("c", 0)]), &Known::new()), "a0 b1! c2!");
    let none = Made { index: None, ..made("a", 0) };
    assert_eq!(answering(&build([none, made("b", -1), made("c", 99)]), &Known::new()), "a0! b1! c2!");
}

#[test]
fn what_is_remembered_wins_over_the_order_of_a_repeated_answer() {
    let answer = build([made("b", 1), made("a", 0), made("c", 2)]);
    assert_eq!(answering(&answer, &known([("a", 0), ("b", 1)])), "a0 b1 c2");
    assert_eq!(answering(&answer, &known([("a", 2)])), "a2! b0! c1!");
    let tagged = build([made("b", 1), made("a", 0).tagged("0+1=1"), made("c", 2)]);
    assert_eq!(answering(&tagged, &Known::new()), "a0 b1 c2", "b takes what is left");
    let alone = build([made("a", 0), made("b", 1)]);
    assert_eq!(
        answering(&alone, &known([("x", 0)])),
        "a2! b1",
        "a machine that the answer leaves out keeps its launch"
    );
}

#[test]
fn an_answer_with_fewer_or_more_instances_gives_each_launch_one() {
    assert_eq!(answering(&build([made("b", 1)]), &Known::new()), "b0!");
    let more = [made("a", 0), made("b", 1), made("c", 2), made("d", 3)];
    assert_eq!(answering(&build(more), &Known::new()), "a0 b1 c2 d-");
}

#[test]
fn a_list_reads_the_tag_and_then_the_launch_index() {
    assert_eq!(listing([made("a", 0), made("b", 1), made("c", 2)]), "a0 b1 c2");
    assert_eq!(listing([made("a", 0).tagged("2+1=1"), made("b", 1), made("c", 2).tagged("0+1=1")]), "a2 b1 c0");
    assert_eq!(listing([made("a", 0).tagged("2+1=1")]), "a2", "the others are not listed yet");
    assert_eq!(listing([made("b", 1), made("c", 2)]), "b1 c2");
    let unread = made("a", 0).tagged("[2]");
    assert_eq!(listing([unread, made("b", 1)]), "a0 b1", "a tag in another form says nothing");
    let of_others = made("a", 0).tagged("7+1=1");
    assert_eq!(listing([of_others, made("b", 1)]), "a0! b1", "nor one with a launch of another call");
}

#[test]
fn instances_without_a_tag_take_what_is_left_although_their_indexes_are_equal_or_missing() {
    assert_eq!(listing([made("a", 0), made("b", 0), made("c", 0)]), "a0 b1! c2!");
    assert_eq!(listing([made("a", 0), made("b", 0).tagged("0+1=1"), made("c", 0)]), "a1! b0 c2!");
    let none = |id| Made { index: None, ..made(id, 0) };
    assert_eq!(listing([none("a"), none("b")]), "a0! b1!");
    assert_eq!(listing([none("a"), made("b", 0), made("c", 7)]), "a2! b0 c1!");
}

#[test]
fn a_second_instance_of_a_launch_is_surplus() {
    let twice = |older: i64| {
        let first = Made { age: older, ..made("b", 1).tagged("0+1=1") };
        listing([Made { age: 5, ..made("a", 0).tagged("0+1=1") }, first])
    };
    assert_eq!(twice(4), "a- b0", "the older one stays");
    assert_eq!(twice(6), "a0 b-", "the older one stays");
    assert_eq!(listing([made("a", 0), made("b", 1), made("c", 2), made("d", 3)]), "a0 b1 c2 d-");
    let instances = build([made("a", 0).tagged("0+1=1"), made("b", 1)]);
    assert_eq!(shown(&listed(&instances, &known([("b", 0)]))), "a- b0!", "this process uses b");
    // Two calls with one launch in common.
    let other = Made { count: 1, ..made("b", 0) };
    assert_eq!(listing([made("a", 0), other, made("c", 1)]), "a2! b0 c1");
    let other = |count| Made { count, ..made("b", 0).tagged("0+1=1") };
    assert_eq!(listing([made("a", 0).tagged("0+1=1"), other(1)]), "a0 b-");
    let instances = build([made("a", 0).tagged("0+1=1"), other(1)]);
    assert_eq!(shown(&listed(&instances, &known([("b", 0)]))), "a- b0");
}

#[test]
fn an_instance_that_has_ended_keeps_its_launch_from_others_and_ends_none_of_them() {
    assert_eq!(listing([made("a", 0).over(), made("b", 0), made("c", 0)]), "a0 b1! c2!");
    assert_eq!(listing([made("a", 0).over(), made("b", 1), made("c", 2), made("d", 3)]), "b1 c2 d0!");
    assert_eq!(listing([made("a", 0).tagged("0+1=1").over(), made("b", 1).tagged("0+1=1")]), "b0");
}

#[test]
fn instances_of_each_version_are_read() {
    for (text, expected) in [
        (include_str!("../formats/instance.tags"), "a3 b4 c7"),
        (include_str!("../formats/instance-older.tags"), "a3 b4 c7"),
        (include_str!("../formats/instance-newer.tags"), "a3 b4 c7"),
        (include_str!("../formats/instance-told.tags"), "a4 b3 c7"),
        (include_str!("../formats/instance-unread.tags"), ""),
    ] {
        let pairs = text.lines().map(|line| line.split_once('=').unwrap());
        let all: Tags = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let of = |(id, index): (&str, i32)| {
            let mut all = all.clone();
            // The tag is that of the first instance alone.
            if index > 0 {
                all.remove(tags::LAUNCH);
            }
            let tags = tags::list(&all);
            Instance::builder().instance_id(id).ami_launch_index(index).set_tags(Some(tags)).build()
        };
        let instances = [("a", 0), ("b", 1), ("c", 2)].map(of);
        let assigned = listed(&instances, &Known::new());
        assert!(assigned.surplus.is_empty(), "{text}");
        let machines = || assigned.found.iter().map(|found| &found.machine);
        let mut found: Vec<String> = machines().map(|machine| format!("{}{}", machine.id, machine.number.0)).collect();
        found.sort();
        assert_eq!(found.join(" "), expected, "{text}");
        for machine in machines() {
            let launch = if machine.number.0 == 7 { "a-strange-one" } else { &format!("p-x-n{}-a1", machine.number.0) };
            assert_eq!(machine.launch.as_str(), launch, "{text}");
            let offer = if all.contains_key(tags::OFFER) { "g5.xlarge/eu-west-1a/spot" } else { "" };
            assert_eq!(machine.offer.as_str(), offer, "{text}");
        }
        let record = machines::record(instances[0].tags()).unwrap();
        let is_older = !all.contains_key(tags::OWNER);
        assert_eq!((record.pool.as_str(), record.owner.is_empty()), ("p-x", is_older), "{text}");
        let expires = if is_older { 0 } else { 1_795_353_501 };
        let expires = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(expires);
        assert_eq!(record.expires, expires + crate::timing::RENEWAL_PERIOD, "{text}");
    }
}
