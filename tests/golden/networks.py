"""The networks with recorded numbers, in PyTorch, with the parameter names of trireme's catalogue. Dropout only on request."""
import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    """TF-slim's: 28x28x1; 5x5 SAME convolutions of 32 and 64, each with ReLU and a 2/2 max pool; fc 1024, ReLU, (dropout), fc 10."""

    shape = (1, 28, 28)

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(7 * 7 * 64, 1024), nn.Linear(1024, 10)
        self.dropout = dropout

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(x.flatten(1)).relu()
        return self.fc2(F.dropout(x, self.dropout, self.training))


class LeNetCaffe(nn.Module):
    """Caffe's: 5x5 VALID convolutions of 20 and 50, each followed by a 2/2 max pool; fc 500 with the only ReLU, fc 10."""

    shape = (1, 28, 28)

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(4 * 4 * 50, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x), 2)
        x = F.max_pool2d(self.conv2(x), 2)
        return self.fc2(self.fc1(x.flatten(1)).relu())


def same_pool(x):
    """3/2 max pool with TensorFlow's SAME on an even size: one pixel after, none before. Padding is never the maximum."""
    return F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=float("-inf")), 3, 2)


def lrn(x):
    """Radius 4, bias 1, beta 0.75, TensorFlow's alpha 0.001 / 9: PyTorch divides its own by the window of 9."""
    return F.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)


class CifarNet(nn.Module):
    """TensorFlow's CIFAR-10 tutorial net: 24x24x3; conv ReLU pool LRN, conv ReLU LRN pool, fc 384, 192, 10."""

    shape = (3, 24, 24)

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(6 * 6 * 64, 384), nn.Linear(384, 192), nn.Linear(192, 10)

    def forward(self, x):
        x = lrn(same_pool(self.conv1(x).relu()))
        x = same_pool(lrn(self.conv2(x).relu()))
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.stride, self.grow = stride, cout - cin

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if self.grow:  # shortcut A: every other pixel, half of the new (zero) channels on each side
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.grow // 2, self.grow - self.grow // 2))
        return (x + y).relu()


class ResNet20(nn.Module):
    """He et al. 2015, section 4.2, n = 3, shortcut A: 32x32x3, stages of 16, 32, 64."""

    shape = (3, 32, 32)

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[Block(16, 16, 1) for _ in range(3)])
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


NETWORKS = {"lenet": LeNet, "lenet-caffe": LeNetCaffe, "cifarnet": CifarNet, "resnet20": ResNet20}


def parameters(net):
    """Returns the number of trained values of a network."""
    return sum(p.numel() for p in net.parameters())


# The published counts, so that a wrong layer is detected.
for _name, _count in {"lenet": 3274634, "lenet-caffe": 431080, "cifarnet": 1068298, "resnet20": 269722}.items():
    with torch.device("meta"):
        assert parameters(NETWORKS[_name]()) == _count, _name
