#[skyward::compute]
fn global_after_use(epochs: u32) -> u32 {
    "
    count = epochs
    global count
    return count
    "
}

#[skyward::compute]
fn unbound(epochs: u32) -> u32 {
    "
    def step():
        nonlocal count
        count += epochs
    step()
    return 1
    "
}

#[skyward::compute]
fn handlers(epochs: u32) -> u32 {
    "
    try:
        return 1 / epochs
    except:
        return 0
    except ZeroDivisionError:
        return 1
    "
}

#[skyward::compute]
fn comprehension(epochs: u32) -> Vec<u32> {
    "return [(yield epoch) for epoch in range(epochs)]"
}

fn main() {}
