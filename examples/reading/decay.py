"""Two ways to shrink weights, with and without Adam: for a large gradient and for a small one."""

import torch

rate, decay, steps = 0.01, 0.1, 200
sizes = torch.tensor([10.0, 0.1])
gradients = sizes * torch.randn(steps, 2, generator=torch.Generator().manual_seed(1))


def trained(kind: type[torch.optim.Optimizer], *, decoupled: float, penalty: float) -> torch.Tensor:
    w = torch.ones(2, requires_grad=True)
    optimizer = kind([w], lr=rate)
    for gradient in gradients:
        w.grad = gradient + penalty * w.detach()  # the gradient of: loss + penalty / 2 · w²
        with torch.no_grad():
            w *= 1 - rate * decoupled  # the optimizer does not see this
        optimizer.step()
    return w.detach()


for kind in (torch.optim.SGD, torch.optim.Adam):
    plain = trained(kind, decoupled=0, penalty=0)
    in_loss = plain - trained(kind, decoupled=0, penalty=decay)
    decoupled = plain - trained(kind, decoupled=decay, penalty=0)
    for name, shrunk in (("penalty in the loss", in_loss), ("decoupled decay", decoupled)):
        print(f"{kind.__name__:5} {name:20}", "shrinks the weights by", *(f"{s:.3f}" for s in shrunk))
