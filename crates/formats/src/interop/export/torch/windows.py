
def windowed_attention(x, heads, window, shift=(0, 0), grid=False, crop=(0, 0), scale=None, table=None, logit_scale=None):
    """Returns attention (N, C, H, W) in windows. x has queries, keys and values (N, 3 C, H, W)."""
    h, w = x.shape[2:]
    rows, columns = window
    shift = tuple(0 if size >= extent else step for step, size, extent in zip(shift, window, (h, w)))

    def divide(t):
        t = t.roll((-shift[0], -shift[1]), (2, 3))
        sizes = [(columns, w // columns), (rows, h // rows)]
        for axis, (cells, windows) in zip((3, 2), sizes):
            t = t.unflatten(axis, (cells, windows) if grid else (windows, cells))
        t = t.permute(0, 3, 5, 2, 4, 1) if grid else t.permute(0, 2, 4, 3, 5, 1)
        return t.flatten(3, 4).flatten(1, 2)

    q, k, v = divide(x).unflatten(3, (3, heads, -1)).permute(3, 0, 1, 4, 2, 5)
    if logit_scale is not None:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        scale = logit_scale.clamp(max=4.605170185988092).exp()
    elif scale is None:
        scale = q.shape[-1] ** -0.5
    logits = q @ k.transpose(-2, -1) * scale
    if table is not None:
        r, c = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
        index = (r[:, None] - r + rows - 1) * (2 * columns - 1) + c[:, None] - c + columns - 1
        logits = logits + table[index.to(table.device)].permute(2, 0, 1)
    if any(shift):
        part = torch.zeros(1, 1, h, w, device=x.device)
        part[:, :, : shift[0]] += 2
        part[:, :, :, : shift[1]] += 1
        part = divide(part)[..., 0]
        logits = logits - 100.0 * (part[:, :, None, :, None] != part[:, :, None, None]).to(x.dtype)
    y = (logits.softmax(-1) @ v).transpose(2, 3).flatten(3)
    y = y.unflatten(2, (rows, columns)).unflatten(1, (h // rows, w // columns))
    y = y.permute(0, 5, 3, 1, 4, 2) if grid else y.permute(0, 5, 1, 3, 2, 4)
    y = y.flatten(4, 5).flatten(2, 3).roll(shift, (2, 3))
    return y[:, :, : h - crop[0], : w - crop[1]]

def continuous_bias(window, w1, b1, w2):
    """Returns the table of a continuous position bias: a row for each difference of positions, a column for each head."""
    axes = [torch.arange(1 - size, size, device=w1.device, dtype=w1.dtype) / (size - 1) * 8 for size in window]
    r = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
    r = r.sign() * (r.abs() + 1).log2() / 3
    return 16 * torch.sigmoid(F.linear(F.relu(F.linear(r, w1, b1)), w2))

