//! Launches of several machines, of which some fail.

use super::*;

/// Launches according to a script for each machine, by number.
#[derive(Debug, Default)]
pub(super) struct Market {
    pub(super) answers: Mutex<std::collections::BTreeMap<u32, Vec<Result<()>>>>,
    /// The machines of each call.
    pub(super) asked: Mutex<Vec<Vec<u32>>>,
    /// The machines of each call of `terminate` and `inspect`.
    pub(super) others: Mutex<Vec<(&'static str, Vec<String>)>>,
    pub(super) batches: bool,
    pub(super) pace: Duration,
    /// How long each call takes, and how long if the machine `slow` is in it.
    pub(super) takes: Duration,
    pub(super) slow: Option<(&'static str, Duration)>,
    /// Held by each call of `launch`.
    pub(super) launching: tokio::sync::Mutex<()>,
}

impl Market {
    async fn launch(self, count: u32) -> (Vec<Result<Machine>>, Vec<Vec<u32>>) {
        let market = Arc::new(self);
        let machines = Checked::new(market.clone()).launch(&batch(count)).await;
        let asked = market.asked.lock().unwrap().clone();
        (machines, asked)
    }

    async fn take(&self, what: &'static str, machines: &[MachineId]) {
        let names: Vec<String> = machines.iter().map(ToString::to_string).collect();
        let slow = self.slow.filter(|(machine, _)| names.iter().any(|name| name == machine));
        self.others.lock().unwrap().push((what, names));
        tokio::time::sleep(slow.map_or(self.takes, |(_, takes)| takes)).await;
    }
}

#[async_trait]
impl Provider for Market {
    fn name(&self) -> &str {
        "market"
    }
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::new().pace(self.pace);
        if self.batches { capabilities.batches() } else { capabilities }
    }
    async fn identity(&self) -> Result<String> {
        Ok(format!("{self:p}"))
    }
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }
    async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn adopt(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.asked.lock().unwrap().push(batch.requests.iter().map(|request| request.number.0).collect());
        let _held = self.launching.lock().await;
        tokio::time::sleep(self.takes).await;
        let mut answers = self.answers.lock().unwrap();
        let one = |request: &LaunchRequest| {
            let script = answers.entry(request.number.0).or_default();
            let answer = if script.is_empty() { Ok(()) } else { script.remove(0) };
            answer.map(|()| Machine::of(batch, request, MachineId::new(request.launch.as_str())))
        };
        batch.requests.iter().map(one).collect()
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.take("inspect", machines).await;
        Ok(machines.iter().map(|machine| MachineReport::new(MachineState::Gone).saying(machine.as_str())).collect())
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        Err(refused())
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.take("terminate", machines).await;
        machines.iter().map(|machine| if machine.as_str() == "locked" { Err(refused()) } else { Ok(()) }).collect()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        Ok(Vec::new())
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn only_machines_of_a_batch_with_a_temporary_error_are_launched_again() {
    let final_error = Error::new(ErrorKind::Provider, "forbidden");
    let answers = [(1, vec![Err(busy()), Err(busy()), Ok(())]), (2, vec![Err(final_error)])];
    let market = Market { answers: Mutex::new(answers.into()), ..Market::default() };
    let (machines, asked) = market.launch(4).await;
    assert_eq!(asked, [vec![0, 1, 2, 3], vec![1], vec![1]]);
    let numbers: Vec<_> =
        machines.iter().map(|machine| machine.as_ref().ok().map(|machine| machine.number.0)).collect();
    assert_eq!(numbers, [Some(0), Some(1), None, Some(3)]);
    let error = machines[2].as_ref().unwrap_err();
    assert!(format!("{error:#}").contains("forbidden") && format!("{error:#}").contains("n2-a1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_retried_as_long_as_one_machine_may_be() {
    let always = vec![Err(busy()); 100];
    let (machines, asked) = Market { answers: Mutex::new([(0, always)].into()), ..Market::default() }.launch(2).await;
    assert_eq!(asked.len(), TRIES as usize);
    assert!(machines[1].is_ok());
    assert!(machines[0].as_ref().unwrap_err().to_string().contains("tries: 8"));
}
