"""The networks of `bench.py` in PyTorch: networks of trireme's catalogue, without torchvision, which may be missing on a GPU machine."""
import torch
from torch import nn


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Linear(1024, 10))


class Basic(nn.Module):
    """Two 3x3 convolutions. The shortcut uses every second pixel and zeros for new channels (option A)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.c2, self.b2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.grow = stride, outputs - inputs

    def forward(self, x):
        y = self.b2(self.c2(torch.relu(self.b1(self.c1(x)))))
        if self.grow:
            half = self.grow // 2
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.grow - half))
        return torch.relu(x + y)


def resnet20():
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for outputs in (16, 32, 64):
        for k in range(3):
            layers.append(Basic(inputs, outputs, 2 if k == 0 and outputs > 16 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions, the last with four times as many channels. The shortcut is a 1x1 projection if the shape
    changes."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.b2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.c3, self.b3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        changes = stride > 1 or inputs != 4 * width
        projection = lambda: nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = projection() if changes else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.b2(self.c2(torch.relu(self.b1(self.c1(x))))))
        return torch.relu(self.b3(self.c3(y)) + self.shortcut(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if k == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def alexnet():
    conv = lambda i, o, k, *more: [nn.Conv2d(i, o, k, *more), nn.ReLU()]
    pool = lambda: [nn.MaxPool2d(3, 2)]
    features = (conv(3, 64, 11, 4, 2) + pool() + conv(64, 192, 5, 1, 2) + pool() + conv(192, 384, 3, 1, 1) +
                conv(384, 256, 3, 1, 1) + conv(256, 256, 3, 1, 1) + pool())
    return nn.Sequential(
        *features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


# name -> network, batch, shape of an image, classes
NETWORKS = {
    "lenet": (lenet, 64, (1, 28, 28), 10),
    "resnet20": (resnet20, 128, (3, 32, 32), 10),
    "resnet50": (resnet50, 256, (3, 224, 224), 1000),
    "alexnet": (alexnet, 256, (3, 224, 224), 1000),
}

# The numbers of parameters of trireme's networks with the same names, so that a wrong layer is detected.
for _name, _count in {"lenet": 3274634, "resnet20": 269722, "resnet50": 25557032, "alexnet": 61100840}.items():
    with torch.device("meta"):
        assert sum(p.numel() for p in NETWORKS[_name][0]().parameters()) == _count, _name


def work(network, image):
    """Returns the FLOPs of a training step for one image, and the minimum bytes of memory traffic at 16 bits per value. In the forward
    pass each layer reads its input and writes its output. In the backward pass convolutions and linear layers read the input, read the
    output gradient twice and write the input gradient. Batch norm reads its input twice in each pass."""
    flops = traffic = 0

    def count(layer, inputs, output):
        nonlocal flops, traffic
        x, y = inputs[0].numel(), output.numel()
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            fan = layer.weight[0].numel()
            flops += 6 * fan * y
            traffic += 2 * (3 * x + 3 * y)
        elif isinstance(layer, nn.BatchNorm2d):
            traffic += 2 * 8 * y
        elif isinstance(layer, nn.MaxPool2d):
            traffic += 2 * 2 * (x + y)

    hooks = [layer.register_forward_hook(count) for layer in network.modules()]
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, *image))
    for hook in hooks:
        hook.remove()
    network.train()
    return flops, traffic
