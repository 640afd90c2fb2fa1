"""The forward formulas as loops over flat Python lists: an independent check of PyTorch that shares no code with it.

Layouts: activations NCHW, convolution weights (out, in / groups, kh, kw), linear weights (out, in).
"""
import math


def _at(shape, n, c, h, w):
    return ((n * shape[1] + c) * shape[2] + h) * shape[3] + w


def out_size(size, kernel, stride, before, after, ceil=False):
    """Output size: floor of the usual formula. In ceil mode a last window that would start after the input and its front padding is
    dropped."""
    span = size + before + after - kernel
    if not ceil:
        return span // stride + 1
    out = -(-span // stride) + 1
    return out - 1 if (out - 1) * stride >= size + before else out


def conv(x, shape, w, wshape, bias, stride, pad, groups, dilation=(1, 1)):
    n, cin, height, width = shape
    cout, per, kh, kw = wshape
    oh = out_size(height, (kh - 1) * dilation[0] + 1, stride[0], pad["top"], pad["bottom"])
    ow = out_size(width, (kw - 1) * dilation[1] + 1, stride[1], pad["left"], pad["right"])
    y = []
    for b in range(n):
        for o in range(cout):
            first = o // (cout // groups) * per
            for i in range(oh):
                for j in range(ow):
                    s = bias[o] if bias else 0.0
                    for c in range(per):
                        for p in range(kh):
                            h = i * stride[0] - pad["top"] + p * dilation[0]
                            if not 0 <= h < height:
                                continue
                            for q in range(kw):
                                v = j * stride[1] - pad["left"] + q * dilation[1]
                                if 0 <= v < width:
                                    s += x[_at(shape, b, first + c, h, v)] * w[_at(wshape, o, c, p, q)]
                    y.append(s)
    return y, [n, cout, oh, ow]


def pool(x, shape, kind, kernel, stride, pad, ceil=False, count_pad=False):
    """kind is "max" or "avg". An average counts padding up to the end of the padded input. A ceil-mode window may extend past it."""
    n, c, height, width = shape
    oh = out_size(height, kernel[0], stride[0], pad["top"], pad["bottom"], ceil)
    ow = out_size(width, kernel[1], stride[1], pad["left"], pad["right"], ceil)
    y = []
    for b in range(n):
        for ch in range(c):
            for i in range(oh):
                for j in range(ow):
                    h0, w0 = i * stride[0] - pad["top"], j * stride[1] - pad["left"]
                    h1, w1 = min(h0 + kernel[0], height + pad["bottom"]), min(w0 + kernel[1], width + pad["right"])
                    rows, cols = range(max(h0, 0), min(h1, height)), range(max(w0, 0), min(w1, width))
                    seen = [x[_at(shape, b, ch, h, w)] for h in rows for w in cols]
                    count = (h1 - h0) * (w1 - w0) if count_pad else len(seen)
                    y.append(max(seen) if kind == "max" else math.fsum(seen) / count)
    return y, [n, c, oh, ow]


def _channel(x, shape, c):
    hw = shape[2] * shape[3]
    return [v for b in range(shape[0]) for v in x[(b * shape[1] + c) * hw : (b * shape[1] + c + 1) * hw]]


def moments(x, shape):
    """Returns the mean and the biased variance over N, H, W per channel."""
    out = []
    for c in range(shape[1]):
        v = _channel(x, shape, c)
        m = math.fsum(v) / len(v)
        out.append((m, math.fsum((a - m) ** 2 for a in v) / len(v)))
    return out


def norm(x, shape, stats, gamma, beta, eps):
    hw = shape[2] * shape[3]
    y = []
    for i, v in enumerate(x):
        c = i // hw % shape[1]
        y.append((v - stats[c][0]) / math.sqrt(stats[c][1] + eps) * gamma[c] + beta[c])
    return y


def lrn(x, shape, size, alpha, beta, k):
    """y = x / (k + alpha / size * sum of squares over the window of `size` channels)^beta, the window cut at both ends."""
    hw, c = shape[2] * shape[3], shape[1]
    y = []
    for i, v in enumerate(x):
        ch = i // hw % c
        lo, hi = max(0, ch - size // 2), min(c - 1, ch + (size - 1) // 2)
        s = math.fsum(x[i + (o - ch) * hw] ** 2 for o in range(lo, hi + 1))
        y.append(v / (k + alpha / size * s) ** beta)
    return y


def linear(x, shape, w, wshape, bias):
    return [
        bias[o] + math.fsum(x[b * shape[1] + i] * w[o * shape[1] + i] for i in range(shape[1]))
        for b in range(shape[0])
        for o in range(wshape[0])
    ]


def cross_entropy(x, shape, labels, smoothing):
    """Returns the mean over the rows of -sum(target * log softmax), target = (1 - smoothing) * onehot + smoothing / classes, and its
    gradient."""
    n, k = shape
    losses, grad = [], []
    for b in range(n):
        row = x[b * k : (b + 1) * k]
        top = max(row)
        norm_ = math.fsum(math.exp(v - top) for v in row)
        target = [(1 - smoothing) * (c == labels[b]) + smoothing / k for c in range(k)]
        losses.append(-math.fsum(t * (v - top - math.log(norm_)) for t, v in zip(target, row)))
        grad += [(math.exp(v - top) / norm_ - t) / n for v, t in zip(row, target)]
    return math.fsum(losses) / n, grad


def shortcut_a(x, shape, stride, before, after):
    n, c, height, width = shape
    y = []
    for b in range(n):
        for o in range(-before, c + after):
            for h in range(0, height, stride):
                for w in range(0, width, stride):
                    y.append(x[_at(shape, b, o, h, w)] if 0 <= o < c else 0.0)
    return y


def group_norm(x, shape, groups, weight, bias, eps):
    """Normalises over groups of channels of each sample, or over the channels of each position if `groups` is None."""
    n, channels, height, width = shape
    plane = height * width
    y = [0.0] * len(x)
    for b in range(n):
        every = [(c, p) for c in range(channels) for p in range(plane)]
        key = (lambda c, p: p) if groups is None else (lambda c, p: c // (channels // groups))
        for one in range(plane if groups is None else groups):
            places = [(c, (b * channels + c) * plane + p) for c, p in every if key(c, p) == one]
            mean = sum(x[i] for _, i in places) / len(places)
            var = sum((x[i] - mean) ** 2 for _, i in places) / len(places)
            for c, i in places:
                y[i] = (x[i] - mean) / math.sqrt(var + eps) * weight[c] + bias[c]
    return y


def blur(x, shape, kernel, size, stride, pad):
    """Applies a filter to each channel. Cells beyond an edge are mirrored without repeating the outermost cell."""
    n, channels, height, width = shape
    mirror = lambda i, of: 2 * (of - 1) - abs(i) if abs(i) >= of else abs(i)
    y = []
    for b in range(n):
        for c in range(channels):
            for i in range((height + 2 * pad - size) // stride + 1):
                for j in range((width + 2 * pad - size) // stride + 1):
                    cells = [(mirror(i * stride - pad + p, height), mirror(j * stride - pad + q, width)) for p in range(size) for q in range(size)]
                    y.append(sum(x[_at(shape, b, c, h, w)] * k for (h, w), k in zip(cells, kernel)))
    return y


def attention(x, shape, heads):
    """Multi-head attention of x, which has the channels of queries, keys and values, over all positions."""
    n, channels, height, width = shape
    plane, each = height * width, channels // 3 // heads
    y = []
    for b in range(n):
        part = lambda number, head, c, p: x[((b * 3 + number) * heads * each + head * each + c) * plane + p]
        for head in range(heads):
            rows = []
            for i in range(plane):
                products = [sum(part(0, head, c, i) * part(1, head, c, j) for c in range(each)) / math.sqrt(each) for j in range(plane)]
                powers = [math.exp(product - max(products)) for product in products]
                rows.append([power / sum(powers) for power in powers])
            y += [sum(rows[i][j] * part(2, head, c, j) for j in range(plane)) for c in range(each) for i in range(plane)]
    return y


def windowed_attention(x, shape, heads, window, shift=(0, 0), grid=False, crop=(0, 0), scale=None, table=None, logit_scale=None):
    """Attention in windows, from the position of each pair. `table` has a list of heads for each difference of positions."""
    n, channels, height, width = shape
    (rows, columns), each = window, channels // 3 // heads
    down, across = (0 if size >= extent else step for step, size, extent in zip(shift, window, (height, width)))

    def place(h, w):
        """Returns window, cell, and the part of the window."""
        if grid:
            down, across = height // rows, width // columns
            return (h % down, w % across), (h // down, w // across), (0, 0)
        r, c = (h - shift_of[0]) % height, (w - shift_of[1]) % width
        part = (shift_of[0] > 0 and r >= height - shift_of[0], shift_of[1] > 0 and c >= width - shift_of[1])
        return (r // rows, c // columns), (r % rows, c % columns), part

    shift_of = (down, across)
    vector = lambda b, number, head, h, w: [x[_at(shape, b, (number * heads + head) * each + c, h, w)] for c in range(each)]
    norm = lambda v: max(math.sqrt(sum(a * a for a in v)), 1e-12)
    kept = [(h, w) for h in range(height - crop[0]) for w in range(width - crop[1])]
    y = []
    for b in range(n):
        for head in range(heads):
            sums = []
            for at in kept:
                own, (i, j), part = place(*at)
                query, logits, values = vector(b, 0, head, *at), [], []
                for other in ((h, w) for h in range(height) for w in range(width)):
                    theirs, (p, q), their_part = place(*other)
                    if theirs != own:
                        continue
                    key = vector(b, 1, head, *other)
                    product = sum(a * k for a, k in zip(query, key))
                    if logit_scale is None:
                        product *= scale or each**-0.5
                    else:
                        product *= min(math.exp(logit_scale[head]), 100.0) / norm(query) / norm(key)
                    if table is not None:
                        product += table[(i - p + rows - 1) * (2 * columns - 1) + j - q + columns - 1][head]
                    logits.append(product if part == their_part else product - 100.0)
                    values.append(vector(b, 2, head, *other))
                powers = [math.exp(logit - max(logits)) for logit in logits]
                sums.append([sum(power * v[c] for power, v in zip(powers, values)) / sum(powers) for c in range(each)])
            y += [s[c] for c in range(each) for s in sums]
    return y


def continuous_table(window, heads, w1, b1, w2):
    """The table of a continuous position bias with hidden units relu(w1 r + b1)."""
    rows, columns = window
    scaled = lambda d, size: math.copysign(math.log2(abs(d) / (size - 1) * 8 + 1) / 3, d)
    table = []
    for d in range(1 - rows, rows):
        for e in range(1 - columns, columns):
            r = (scaled(d, rows), scaled(e, columns))
            units = [max(w1[2 * i] * r[0] + w1[2 * i + 1] * r[1] + b, 0.0) for i, b in enumerate(b1)]
            sums = [sum(w2[head * len(b1) + i] * unit for i, unit in enumerate(units)) for head in range(heads)]
            table.append([16 / (1 + math.exp(-s)) for s in sums])
    return table


def space_to_depth(x, shape, size):
    n, channels, height, width = shape
    inside = lambda h, w: h < height and w < width
    pixels = [(i, j) for j in range(size) for i in range(size)]
    return [
        x[_at(shape, b, c, h + i, w + j)] if inside(h + i, w + j) else 0.0
        for b in range(n) for i, j in pixels for c in range(channels) for h in range(0, height, size) for w in range(0, width, size)
    ]  # fmt: skip
