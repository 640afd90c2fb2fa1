"""A single measurement of `bench.py` in a separate process: PyTorch's training step on synthetic images on the device (channels_last, AMP
bf16, SGD with momentum), the limits of the GPU, or a training to an accuracy. Prints a JSON line.

  peer.py NETWORK WAY --device cuda|cpu --batch N --seconds S
  peer.py floors --device cuda|cpu
  peer.py accuracy --device cuda|cpu --data CIFAR10 --top1 0.9 --epochs E --milestones E E

WAY is one of
  eager          SGD as PyTorch chooses it, no graph
  compile        torch.compile; with CUDA graphs for small networks, where launches cost the most
  autotune       torch.compile with mode max-autotune, fused SGD
  graph          one CUDA graph of the whole step, fused SGD
  compile-graph  torch.compile inside one CUDA graph of the whole step, fused SGD
  best           all of the above, and the fastest of them
"""
import argparse
import json
import statistics
import time

BEGAN = time.time()  # what follows takes seconds

import torch

from cifar import accuracy
from networks import NETWORKS, work


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def rate(step, device, seconds, least=5):
    """Returns the median seconds of a step. Many steps are enqueued between two time measurements, so that these cost nothing."""
    for _ in range(least):
        step()
    wait(device)
    start = time.perf_counter()
    step()
    wait(device)
    group = max(1, int(0.2 / max(time.perf_counter() - start, 1e-6)))
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(group):
            step()
        wait(device)
        times.append((time.perf_counter() - start) / group)
    return statistics.median(times)


WAYS = ["eager", "compile", "autotune", "graph", "compile-graph"]


def training_step(a, network, way):
    """Returns a function that runs a training step in this way."""
    x = torch.randn(a.batch, *NETWORKS[a.network][2], device=a.device).to(memory_format=torch.channels_last)
    y = torch.randint(NETWORKS[a.network][3], (a.batch,), device=a.device)
    fused = way in ("autotune", "graph", "compile-graph")
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, **({"fused": True} if fused else {}))
    modes = {"compile": "reduce-overhead" if a.network in ("lenet", "resnet20") else "default", "autotune": "max-autotune",
             "compile-graph": "default"}
    forward = torch.compile(network, mode=modes[way]) if way in modes else network
    whole = way in ("graph", "compile-graph")

    def step():
        optimizer.zero_grad(set_to_none=True)
        # a recorded step must convert the weights again in each replay
        with torch.autocast(a.device, dtype=torch.bfloat16, cache_enabled=not whole):
            loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()

    if not whole:
        return step
    if a.device != "cuda":
        raise RuntimeError("CUDA graphs need a GPU")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def train(a):
    build, _, image, _ = NETWORKS[a.network]
    torch.backends.cudnn.benchmark = True
    flops, traffic = work(build(), image)
    measured, failed = {}, {}
    for way in WAYS if a.way == "best" else [a.way]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        network = build().to(a.device, memory_format=torch.channels_last).train()
        if a.device == "cuda":
            torch.cuda.empty_cache()
        try:
            seconds = rate(training_step(a, network, way), a.device, a.seconds)
        except Exception as error:  # a way that this version or device lacks does not stop the others
            failed[way] = str(error).splitlines()[0][:200]
            continue
        # GPU memory, as in nvidia-smi, because PyTorch keeps all memory that it has allocated
        free, total = torch.cuda.mem_get_info() if a.device == "cuda" else (0, 0)
        measured[way] = {"img_per_s": a.batch / seconds, "gpu_memory_mb": (total - free) / 2**20}
    if not measured:
        raise SystemExit(f"{a.network}: no way of training works: {failed}")
    way = max(measured, key=lambda way: measured[way]["img_per_s"])
    return {**measured[way], "way": way, "ways": measured, "failed": failed, "flops": flops, "traffic": traffic,
            "torch": torch.__version__}


def floors(a):
    """Measures the peak speed of a large bf16 product and the bandwidth of a large copy (bytes read and written)."""
    n = 8192 if a.device == "cuda" else 512
    x, y = (torch.randn(n, n, device=a.device, dtype=torch.bfloat16) for _ in range(2))
    product = rate(lambda: x @ y, a.device, a.seconds)
    big = torch.empty((1 << 30) if a.device == "cuda" else (1 << 24), dtype=torch.uint8, device=a.device)
    to = torch.empty_like(big)
    copy = rate(lambda: to.copy_(big), a.device, a.seconds)
    name = torch.cuda.get_device_name() if a.device == "cuda" else "processor"
    return {"flops_per_s": 2 * n**3 / product, "bytes_per_s": 2 * big.numel() / copy, "device": name, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=[*NETWORKS, "floors", "accuracy"])
    parser.add_argument("way", nargs="?", choices=[*WAYS, "best"], default="eager")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--data")
    parser.add_argument("--top1", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--milestones", type=int, nargs="*", default=[])
    parser.add_argument("--max-steps", type=int, help="of an epoch, and parts of 500 scored images: to check the script")
    parser.set_defaults(began=BEGAN)
    a = parser.parse_args()
    print(json.dumps({"floors": floors, "accuracy": accuracy}.get(a.network, train)(a)), flush=True)


if __name__ == "__main__":
    main()
