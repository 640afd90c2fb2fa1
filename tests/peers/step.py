"""A single measurement of `bench.py` in a separate process: PyTorch's training step on synthetic images in memory (channels_last, SGD with
momentum). Prints a JSON line. With `--port` it is one of two ranks that average their gradients with DDP over gloo.

  step.py NETWORK --batch N --threads T --seconds S [--size PX] [--bf16] [--port P --rank R]
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu"))
from networks import NETWORKS  # noqa: E402


def build(name):
    """Returns the network, the shape of an image, and the number of classes. Networks that torchvision lacks are trireme's own."""
    if name in NETWORKS:
        make, _, image, classes = NETWORKS[name]
        return make(), image, classes
    import torchvision

    if name == "inception_v3":
        return torchvision.models.inception_v3(weights=None, aux_logits=True, init_weights=False), (3, 299, 299), 1000
    return torchvision.models.get_model(name, weights=None), (3, 224, 224), 1000


def loss_of(output, y):
    """Cross-entropy, with the auxiliary classifier of Inception-v3 at 0.4."""
    if isinstance(output, torch.Tensor):
        return cross_entropy(output, y)
    return cross_entropy(output.logits, y) + 0.4 * cross_entropy(output.aux_logits, y)


def memory_mb():
    """Returns anonymous and shared memory of this process, as `memory_mb` of `trireme bench step`."""
    with open("/proc/self/status") as file:
        facts = dict(line.split(":", 1) for line in file)
    return sum(int(facts[key].split()[0]) for key in ("RssAnon", "RssShmem")) * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--size", type=int, help="height and width of the images in pixels")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--rank", type=int, default=0)
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    network, image, classes = build(a.network)
    image = (image[0], a.size, a.size) if a.size else image
    network = network.to(memory_format=torch.channels_last).train()
    forward = network
    if a.port:
        torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{a.port}", world_size=2, rank=a.rank)
        forward = torch.nn.parallel.DistributedDataParallel(network)
    x = torch.randn(a.batch, *image).to(memory_format=torch.channels_last)
    y = torch.randint(classes, (a.batch,))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16):
            loss = loss_of(forward(x), y)
        loss.backward()
        optimizer.step()

    step()
    start = time.perf_counter()
    step()
    # the same number of steps on both ranks, which wait for each other
    steps = torch.tensor(max(3, int(a.seconds / (time.perf_counter() - start))))
    if a.port:
        torch.distributed.broadcast(steps, 0)
    times = []
    for _ in range(int(steps)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(json.dumps({"img_per_s": a.batch / statistics.median(times), "memory_mb": memory_mb(), "version": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
