"""The networks of trireme's catalogue in PyTorch, from torchvision, timm, or as plain modules if neither has them.

Module names are the names of the catalogue's layers. Dropout and stochastic depth are off.
"""
import functools

import timm
import torch
import torch.nn.functional as F
import torchvision.models as tv
from timm.layers import DropPath
from torch import nn
from torchvision.ops import StochasticDepth

CLASSES = 10


class CifarNetSlim(nn.Module):
    """TF-slim's: conv 5x5-64 ReLU, pool 2x2/2, LRN, twice (the second time LRN precedes the pool); fc 384, 192."""

    def __init__(self, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.fc3, self.fc4, self.logits = nn.Linear(64 * 8 * 8, 384), nn.Linear(384, 192), nn.Linear(192, classes)

    def forward(self, x):
        # PyTorch divides alpha by the window of 9, TensorFlow does not
        def lrn(x):
            return F.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)

        x = lrn(F.max_pool2d(self.conv1(x).relu(), 2))
        x = F.max_pool2d(lrn(self.conv2(x).relu()), 2)
        return self.logits(self.fc4(self.fc3(x.flatten(1)).relu()).relu())


class WideBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(cout), nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        if cin != cout:
            self.shortcut = nn.Conv2d(cin, cout, 1, stride, bias=False)
        self.projects = cin != cout

    def forward(self, x):
        first = self.bn1(x).relu()
        y = self.conv2(self.bn2(self.conv1(first)).relu())
        return y + (self.shortcut(first) if self.projects else x)


class WideResNet(nn.Module):
    """WRN-depth-width for CIFAR: three groups of pre-activated blocks. The shortcut projects the output of the first norm."""

    def __init__(self, depth, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        cin = 16
        for group, base in enumerate([16, 32, 64]):
            blocks = []
            for block in range((depth - 4) // 6):
                blocks.append(WideBlock(cin, base * width, 2 if group and not block else 1))
                cin = base * width
            setattr(self, f"block{group + 1}", nn.Sequential(*blocks))
        self.bn1, self.fc = nn.BatchNorm2d(cin), nn.Linear(cin, classes)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.bn1(x).relu().mean((2, 3)))


class OverFeat(nn.Module):
    """The fast network of Sermanet et al. 2013. `side` is the side of the last plane, 6 for images of 231 pixels."""

    def __init__(self, classes, side):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(96, 256, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(256, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 1024, 3, padding=1), nn.ReLU(),
            nn.Conv2d(1024, 1024, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(1024 * side * side, 3072), nn.ReLU(), nn.Dropout(), nn.Linear(3072, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, classes))  # fmt: skip

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class TwoColumns(nn.Module):
    """TernGrad's AlexNet: two towers that are joined at conv3 and fc6; SAME convolutions, LRN (radius 2, bias 2, 1e-4, 0.75)."""

    def __init__(self, classes, side):
        super().__init__()
        for column in "12":
            for layer, (cin, cout, k) in {1: (3, 48, 11), 2: (48, 128, 5), 3: (256, 192, 3), 4: (192, 192, 3), 5: (192, 128, 3)}.items():
                setattr(self, f"conv{layer}_{column}", nn.Conv2d(cin, cout, k))
        self.fc6, self.fc7, self.logits = nn.Linear(256 * side * side, 4096), nn.Linear(4096, 4096), nn.Linear(4096, classes)

    def conv(self, layer, column, x, stride=1):
        conv = getattr(self, f"conv{layer}_{column}")
        k = conv.kernel_size[0]
        total = [max((-(-n // stride) - 1) * stride + k - n, 0) for n in x.shape[2:]]
        x = F.pad(x, (total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2))
        return F.conv2d(x, conv.weight, conv.bias, stride).relu()

    def forward(self, x):
        def lrn_pool(x):
            return F.max_pool2d(F.local_response_norm(x, 5, alpha=5e-4, beta=0.75, k=2.0), 3, 2)

        def first(column):
            y = lrn_pool(self.conv(1, column, x, 4))
            return lrn_pool(self.conv(2, column, y))

        def second(column):
            return F.max_pool2d(self.conv(5, column, self.conv(4, column, self.conv(3, column, both))), 3, 2)

        both = torch.cat([first(1), first(2)], 1)
        x = torch.cat([second(1), second(2)], 1).flatten(1)
        return self.logits(self.fc7(self.fc6(x).relu()).relu())


def without_scale(norm):
    """Batch norm with a shift but no scale."""
    norm.register_parameter("weight", None)
    return norm


class SlimInception(tv.Inception3):
    """TF-slim's variant: norms have no scale, average pools exclude their padding."""

    def __init__(self, classes):
        super().__init__(num_classes=classes, init_weights=False)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                without_scale(module)

    def forward(self, x):
        pool = F.avg_pool2d
        F.avg_pool2d = functools.partial(pool, count_include_pad=False)
        try:
            return super().forward(x)
        finally:
            F.avg_pool2d = pool


class ConvGroup(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False), without_scale(nn.BatchNorm2d(cout, eps=1e-12))
        self.conv2, self.norm2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False), without_scale(nn.BatchNorm2d(cout, eps=1e-12))

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Airbench94(nn.Module):
    """Jordan 2024: conv 2x2-24, GELU, three groups, max pool 3x3, fc without bias, divided by 9."""

    def __init__(self, classes):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.group1, self.group2, self.group3 = ConvGroup(24, 64), ConvGroup(64, 256), ConvGroup(256, 256)
        self.head = nn.Linear(256, classes, bias=False)

    def forward(self, x):
        x = self.group3(self.group2(self.group1(F.gelu(self.whiten(x)))))
        return self.head(F.max_pool2d(x, 3).flatten(1)) / 9


class AveragedVit(tv.VisionTransformer):
    """torchvision's vision transformer with the mean of all positions instead of a class token (Beyer et al. 2022)."""

    def __init__(self, pixels, patch, width, heads):
        super().__init__(pixels, patch, 12, heads, width, 4 * width, num_classes=CLASSES)
        del self.class_token
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, (pixels // patch) ** 2, width))

    def forward(self, x):
        return self.heads(self.encoder(self._process_input(x)).mean(1))


# Image size per network. The deepest planes have at least four positions if batch norm processes them, and ten steps are not chaotic
# (catalogue.py).
PIXELS = {
    "airbench94": 32, "inception_v3-slim": 299, "cifarnet-slim": 32, "wrn16_2": 32, "wrn28_10": 32, "alexnet-columns": 127, "overfeat": 127,
    "vgg11": 32, "vgg13": 32, "vgg16": 32, "vgg19": 32, "vgg11_bn": 32, "vgg13_bn": 32, "vgg16_bn": 32, "vgg19_bn": 32,
    "googlenet": 96, "inception_v3": 299, "inception_v4": 139, "inception_resnet_v2": 139,
    "resnet34": 64, "resnet101": 64, "resnet152": 64, "resnetv2_50": 64, "resnetv2_101": 64, "resnetv2_152": 64, "resnext50_32x4d": 96, "resnext101_32x8d": 64,
    "resnext101_64x4d": 64, "wide_resnet50_2": 96, "wide_resnet101_2": 64, "seresnet50": 64,
    "densenet121": 64, "densenet161": 64, "densenet169": 64, "densenet201": 64,
    "squeezenet1_0": 64, "squeezenet1_1": 64, "mobilenetv1_100": 64, "mobilenet_v2": 96,
    "mobilenet_v3_large": 64, "mobilenet_v3_small": 64, "efficientnet_b0": 64, "efficientnet_b1": 64, "efficientnet_b2": 64,
    "efficientnet_b3": 64, "efficientnet_b4": 64, "tf_efficientnet_lite0": 64, "tf_efficientnet_lite1": 64,
    "tf_efficientnet_lite2": 64, "tf_efficientnet_lite3": 64, "tf_efficientnet_lite4": 64,
    "convnext_tiny": 32, "convnext_small": 32, "convnext_base": 32, "convnext_large": 32,
    "mnasnet0_5": 128, "mnasnet0_75": 64, "mnasnet1_0": 64, "mnasnet1_3": 64, "efficientnet_b5": 64, "efficientnet_b6": 64,
    "efficientnet_b7": 64, "efficientnet_v2_s": 128, "efficientnet_v2_m": 64, "efficientnet_v2_l": 64,
    "regnet_x_400mf": 64, "regnet_x_800mf": 64, "regnet_x_1_6gf": 64, "regnet_x_3_2gf": 64, "regnet_x_8gf": 64, "regnet_x_16gf": 64,
    "regnet_x_32gf": 64, "regnet_y_400mf": 128, "regnet_y_800mf": 64, "regnet_y_1_6gf": 64, "regnet_y_3_2gf": 64, "regnet_y_8gf": 64,
    "regnet_y_16gf": 64, "regnet_y_32gf": 64, "regnet_y_128gf": 64,
    "shufflenet_v2_x0_5": 96, "shufflenet_v2_x1_0": 96, "shufflenet_v2_x1_5": 96, "shufflenet_v2_x2_0": 96,
    "vit_b_16": 64, "vit_b_32": 64, "vit_l_16": 64, "vit_l_32": 64, "vit_h_14": 28,
    "swin_t": 64, "swin_s": 64, "swin_b": 64, "swin_v2_t": 64, "swin_v2_s": 64, "swin_v2_b": 64, "maxvit_t": 224,
    "vit_s_16": 64, "vit_ti_4": 32,
}  # fmt: skip

# One network of each family learns for ten steps. Two of the Inceptions do, because Inception-v4 is chaotic at every rate.
LEARNS = [
    "airbench94", "cifarnet-slim", "wrn16_2", "alexnet-columns", "overfeat", "vgg11", "vgg11_bn", "googlenet", "inception_v3",
    "inception_resnet_v2", "resnetv2_50", "resnext50_32x4d", "wide_resnet50_2", "seresnet50", "densenet121", "squeezenet1_1",
    "mobilenetv1_100", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "tf_efficientnet_lite0", "convnext_tiny",
    "mnasnet0_5", "efficientnet_v2_s", "regnet_y_400mf", "shufflenet_v2_x0_5", "vit_b_16",
    "swin_t", "swin_v2_t", "maxvit_t",
]  # fmt: skip

# Weights of the losses of the auxiliary classifiers, in the order of the outputs after the first.
HEADS = {"googlenet": [0.3, 0.3], "inception_v3": [0.4], "inception_v3-slim": [0.4]}

PLAIN = {
    "airbench94": lambda: Airbench94(CLASSES),
    "inception_v3-slim": lambda: SlimInception(CLASSES),
    "cifarnet-slim": lambda: CifarNetSlim(CLASSES),
    "wrn16_2": lambda: WideResNet(16, 2, CLASSES),
    "wrn28_10": lambda: WideResNet(28, 10, CLASSES),
    "overfeat": lambda: OverFeat(CLASSES, 2),
    "alexnet-columns": lambda: TwoColumns(CLASSES, 3),
    "vit_s_16": lambda: AveragedVit(PIXELS["vit_s_16"], 16, 384, 6),
    "vit_ti_4": lambda: AveragedVit(PIXELS["vit_ti_4"], 4, 192, 3),
}


def build(name):
    """Returns the network for ten classes, without randomness."""
    if name in PLAIN:
        net = PLAIN[name]()
    elif name in tv.list_models():
        starts = {"init_weights": False} if name in HEADS else {"image_size": PIXELS[name]} if name.startswith("vit") else {}
        starts |= {"input_size": (PIXELS[name],) * 2} if name.startswith("maxvit") else {}
        net = tv.get_model(name, weights=None, num_classes=CLASSES, **starts)
    else:
        net = timm.create_model(name, num_classes=CLASSES)
    for module in net.modules():
        if isinstance(module, (nn.Dropout, StochasticDepth)):
            module.p = 0.0
        if isinstance(module, DropPath):
            module.drop_prob = 0.0
    return net
