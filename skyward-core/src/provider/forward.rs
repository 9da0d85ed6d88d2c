//! Pointers to providers are providers.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
};
use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;

macro_rules! forward {
    ($pointer:ident) => {
        // Fails to compile where a method gets a default later and is not forwarded here.
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl<T: Provider + ?Sized> Provider for $pointer<T> {
            fn name(&self) -> &str {
                (**self).name()
            }

            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            async fn identity(&self) -> Result<String> {
                (**self).identity().await
            }

            fn parts(&self) -> Vec<Part> {
                (**self).parts()
            }

            async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
                (**self).offers(requirements).await
            }

            async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
                (**self).prepare(pool).await
            }

            async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
                (**self).adopt(pool).await
            }

            async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
                (**self).launch(batch).await
            }

            async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
                (**self).inspect(machines).await
            }

            async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
                (**self).connect(machine, at).await
            }

            async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
                (**self).terminate(machines).await
            }

            async fn teardown(&self, pool: &PoolId) -> Result<()> {
                (**self).teardown(pool).await
            }

            async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
                (**self).list(pool).await
            }

            async fn pools(&self) -> Result<Vec<PoolRecord>> {
                (**self).pools().await
            }
        }
    };
}

forward!(Arc);
forward!(Box);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::ids::{Attempt, LaunchId, MachineNumber};
    use crate::provider::LaunchRequest;

    /// Records the names of the methods that were called.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<&'static str>>);

    impl Recorder {
        fn note(&self, method: &'static str) {
            self.0.lock().unwrap().push(method);
        }
    }

    #[async_trait]
    impl Provider for Recorder {
        fn name(&self) -> &str {
            self.note("name");
            "recorder"
        }
        fn capabilities(&self) -> Capabilities {
            self.note("capabilities");
            Capabilities::new().keeper()
        }
        async fn identity(&self) -> Result<String> {
            self.note("identity");
            Ok("an account".into())
        }
        fn parts(&self) -> Vec<Part> {
            self.note("parts");
            Vec::new()
        }
        async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
            self.note("offers");
            Ok(Vec::new())
        }
        async fn prepare(&self, _: &PoolRequest) -> Result<()> {
            self.note("prepare");
            Ok(())
        }
        async fn adopt(&self, _: &PoolRequest) -> Result<()> {
            self.note("adopt");
            Ok(())
        }
        async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
            self.note("launch");
            vec![Ok(Machine::of(batch, &batch.requests[0], MachineId::new("m")))]
        }
        async fn inspect(&self, _: &[MachineId]) -> Result<Vec<MachineReport>> {
            self.note("inspect");
            Ok(Vec::new())
        }
        async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
            self.note("connect");
            Ok(Box::new(crate::remote::Process::new()))
        }
        async fn terminate(&self, _: &[MachineId]) -> Vec<Result<()>> {
            self.note("terminate");
            Vec::new()
        }
        async fn teardown(&self, _: &PoolId) -> Result<()> {
            self.note("teardown");
            Ok(())
        }
        async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
            self.note("list");
            Ok(Vec::new())
        }
        async fn pools(&self) -> Result<Vec<PoolRecord>> {
            self.note("pools");
            Ok(Vec::new())
        }
    }

    /// Calls each method once, through static dispatch.
    async fn call_all(provider: impl Provider) {
        let (pool, number, lease) = (PoolId::random(), MachineNumber(0), Duration::from_secs(1));
        let launch = LaunchId::of(&pool, number, Attempt(1));
        let request = LaunchRequest::new(launch, pool.clone(), number, lease);
        let batch = LaunchBatch::one(Offer::new("t", "p", 1, 1), request);
        assert_eq!(provider.name(), "recorder");
        assert!(provider.capabilities().keeper);
        assert_eq!(provider.identity().await.unwrap(), "an account");
        assert!(provider.parts().is_empty());
        provider.offers(&Requirements::default()).await.unwrap();
        provider.prepare(&PoolRequest::new(pool.clone(), lease)).await.unwrap();
        provider.adopt(&PoolRequest::new(pool.clone(), lease)).await.unwrap();
        let machine = provider.launch(&batch).await.remove(0).unwrap();
        provider.inspect(&[]).await.unwrap();
        provider.connect(&machine, &Place::new("127.0.0.1", "/f")).await.unwrap();
        provider.terminate(&[machine.id]).await;
        provider.teardown(&pool).await.unwrap();
        provider.list(&pool).await.unwrap();
        provider.pools().await.unwrap();
    }

    #[tokio::test]
    async fn an_arc_and_a_box_forward_each_method() {
        let direct = Arc::new(Recorder::default());
        let dynamic: Arc<dyn Provider> = direct.clone();
        call_all(direct.clone()).await;
        let called = std::mem::take(&mut *direct.0.lock().unwrap());
        assert_eq!(called.len(), 14, "{called:?}");
        call_all(dynamic.clone()).await;
        assert_eq!(std::mem::take(&mut *direct.0.lock().unwrap()), called);
        call_all(Box::new(dynamic) as Box<dyn Provider>).await;
        assert_eq!(std::mem::take(&mut *direct.0.lock().unwrap()), called);
    }
}
