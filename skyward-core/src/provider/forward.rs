//! Pointers to providers are providers.

use std::sync::Arc;

use async_trait::async_trait;

use super::{LaunchRequest, Machine, MachineStatus, Offer, Provider, Requirements};
use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;

macro_rules! forward {
    ($pointer:ident) => {
        // A method that gets a default later must be forwarded here all the same.
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl<T: Provider + ?Sized> Provider for $pointer<T> {
            fn name(&self) -> &str {
                (**self).name()
            }

            async fn identity(&self) -> Result<Option<String>> {
                (**self).identity().await
            }

            fn outlives_client(&self) -> bool {
                (**self).outlives_client()
            }

            async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
                (**self).offers(requirements).await
            }

            async fn prepare(&self, pool: &PoolId) -> Result<()> {
                (**self).prepare(pool).await
            }

            async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
                (**self).launch(request).await
            }

            async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>> {
                (**self).inspect(machines).await
            }

            async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>> {
                (**self).connect(machine).await
            }

            async fn terminate(&self, machine: &MachineId) -> Result<()> {
                (**self).terminate(machine).await
            }

            async fn teardown(&self, pool: &PoolId) -> Result<()> {
                (**self).teardown(pool).await
            }

            async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
                (**self).list(pool).await
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
    use crate::ids::{Attempt, LaunchId, NodeIndex};

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
        async fn identity(&self) -> Result<Option<String>> {
            self.note("identity");
            Ok(Some("an account".into()))
        }
        fn outlives_client(&self) -> bool {
            self.note("outlives_client");
            false
        }
        async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
            self.note("offers");
            Ok(Vec::new())
        }
        async fn prepare(&self, _: &PoolId) -> Result<()> {
            self.note("prepare");
            Ok(())
        }
        async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
            self.note("launch");
            Ok(Machine::new(request, MachineId::new("m"), "127.0.0.1", "/f"))
        }
        async fn inspect(&self, _: &[MachineId]) -> Result<Vec<MachineStatus>> {
            self.note("inspect");
            Ok(Vec::new())
        }
        async fn connect(&self, _: &Machine) -> Result<Box<dyn Remote>> {
            self.note("connect");
            Ok(Box::new(crate::remote::Process::new()))
        }
        async fn terminate(&self, _: &MachineId) -> Result<()> {
            self.note("terminate");
            Ok(())
        }
        async fn teardown(&self, _: &PoolId) -> Result<()> {
            self.note("teardown");
            Ok(())
        }
        async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
            self.note("list");
            Ok(Vec::new())
        }
    }

    /// Calls each method once, by static dispatch.
    async fn call_all(provider: impl Provider) {
        let (pool, node) = (PoolId::random(), NodeIndex(0));
        let launch = LaunchId::of(&pool, node, Attempt(1));
        let offer = Offer::new("t", "p", 1, 1);
        let request = LaunchRequest::new(launch, pool.clone(), node, offer, Duration::from_secs(1));
        assert_eq!((provider.name(), provider.outlives_client()), ("recorder", false));
        assert_eq!(provider.identity().await.unwrap().as_deref(), Some("an account"));
        provider.offers(&Requirements::default()).await.unwrap();
        provider.prepare(&pool).await.unwrap();
        let machine = provider.launch(&request).await.unwrap();
        provider.inspect(&[]).await.unwrap();
        provider.connect(&machine).await.unwrap();
        provider.terminate(&machine.id).await.unwrap();
        provider.teardown(&pool).await.unwrap();
        provider.list(&pool).await.unwrap();
    }

    #[tokio::test]
    async fn an_arc_and_a_box_forward_each_method() {
        let direct = Arc::new(Recorder::default());
        let dynamic: Arc<dyn Provider> = direct.clone();
        call_all(direct.clone()).await;
        let called = std::mem::take(&mut *direct.0.lock().unwrap());
        assert_eq!(called.len(), 11, "{called:?}");
        call_all(dynamic.clone()).await;
        assert_eq!(std::mem::take(&mut *direct.0.lock().unwrap()), called);
        call_all(Box::new(dynamic) as Box<dyn Provider>).await;
        assert_eq!(std::mem::take(&mut *direct.0.lock().unwrap()), called);
    }
}
