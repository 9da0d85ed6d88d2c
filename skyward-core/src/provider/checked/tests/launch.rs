//! Launches of several machines, of which some fail.

use super::*;

/// Launches according to a script for each machine, by number.
#[derive(Debug, Default)]
struct Market {
    answers: Mutex<std::collections::BTreeMap<u32, Vec<Result<()>>>>,
    /// The machines of each call.
    asked: Mutex<Vec<Vec<u32>>>,
}

impl Market {
    async fn launch(self, count: u32) -> (Vec<Result<Machine>>, Vec<Vec<u32>>) {
        let market = Arc::new(self);
        let machines = Checked::new(market.clone()).launch(&batch(count)).await;
        let asked = market.asked.lock().unwrap().clone();
        (machines, asked)
    }
}

#[async_trait]
impl Provider for Market {
    fn name(&self) -> &str {
        "market"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }
    async fn identity(&self) -> Result<String> {
        Ok("here".to_owned())
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
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.asked.lock().unwrap().push(batch.requests.iter().map(|request| request.number.0).collect());
        let mut answers = self.answers.lock().unwrap();
        let one = |request: &LaunchRequest| {
            let script = answers.entry(request.number.0).or_default();
            let answer = if script.is_empty() { Ok(()) } else { script.remove(0) };
            answer.map(|()| Machine::of(batch, request, MachineId::new(request.launch.as_str())))
        };
        batch.requests.iter().map(one).collect()
    }
    async fn inspect(&self, _: &[MachineId]) -> Result<Vec<MachineReport>> {
        Ok(Vec::new())
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        Err(refused())
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        machines.iter().map(|_| Ok(())).collect()
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
