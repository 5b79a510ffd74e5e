#!/usr/bin/env python3
"""Times torch.compile's kernels for what bench_kernels measures, on a GPU: the same names and sizes, to stand beside it.
Then bf16 products of square matrices, over a second and over twenty: what the GPU does at once, what it sustains.

usage: python3 tests/bench/bench_compiled.py      (needs a CUDA PyTorch, its compiler and a GPU; says so where not)
"""
import sys

try:
    import torch
except ImportError:
    sys.exit("bench_compiled: this Python has no torch")

T, H, F = 8192, 7168, 18432


def made(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)


def seconds(run):
    """The median of 20 after 3 to warm up; the L2 cache is swept before each, as bench_kernels does."""
    sweep = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for i in range(23):
        sweep.fill_(i)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def norm(h, weight):
    wide = h.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight).to(h.dtype)


def sum_norm(x, residual, weight):
    h = x + residual
    return h, norm(h, weight)


def swiglu(both):
    return torch.nn.functional.silu(both[:, :F]) * both[:, F:]


def rotary(x, cosine, sine):
    a, b = x[..., :64], x[..., 64:]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


def unpermute(rows, share, token, choice):
    weighted = rows * share.flatten()[choice].unsqueeze(1)
    return torch.zeros(T, H, device="cuda", dtype=rows.dtype).index_add(0, token, weighted)


def backward_of(function, *inputs):
    y = function(*inputs)
    dy = torch.ones_like(y)
    wanted = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True)


def sustained_products():
    for n in (4096, 8192):
        a, b = made(n, n), made(n, n)
        for _ in range(5):
            a @ b
        flops = 2 * n**3
        for wanted in (1, 20):
            count = int(wanted * 7e14 / flops)  # as long as on an H100
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for _ in range(count):
                a @ b
            end.record()
            torch.cuda.synchronize()
            took = begin.elapsed_time(end) * 1e-3
            print(f"bf16 product of {n} x {n:<14} {flops * count / took / 1e12:7.1f} TFLOP/s over {took:.1f} s")


def main():
    if not torch.cuda.is_available():
        print("bench_compiled: there is no CUDA device here, or this PyTorch has no CUDA")
        return
    functions = {f.__name__: torch.compile(f) for f in (norm, sum_norm, swiglu, rotary, unpermute)}
    x, weight = made(T, H), made(H)
    heads, table = made(2, 4096, 56, 128), torch.randn(4096, 1, 64, device="cuda")
    choice = torch.randint(256, (T * 8,), device="cuda").argsort(stable=True)
    token = choice // 8
    rows, share = made(8 * T, H, grad=True), made(T, 8, grad=True)
    runs = {
        "RMSNorm forward": lambda: functions["norm"](x, weight),
        "RMSNorm forward + residual": lambda: functions["sum_norm"](x, x, weight),
        "RMSNorm input gradient": backward_of(functions["norm"], made(T, H, grad=True), made(H, grad=True)),
        "SwiGLU forward": (lambda both: lambda: functions["swiglu"](both))(made(T, 2 * F)),
        "SwiGLU backward": backward_of(functions["swiglu"], made(T, 2 * F, grad=True)),
        "rotary, in place": lambda: functions["rotary"](heads, table, table),
        "MoE unpermute": lambda: functions["unpermute"](rows.detach(), share.detach(), token, choice),
        "MoE unpermute backward": backward_of(functions["unpermute"], rows, share, token, choice),
    }
    print(f"torch.compile of PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    for name, run in runs.items():
        print(f"{name:<34} {seconds(run) * 1e6:9.1f} us")
    sustained_products()


if __name__ == "__main__":
    main()
