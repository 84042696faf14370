"""Adam by hand: three steps of a weight with small gradients and one with large ones, as torch makes them."""

import torch

rate, beta_1, beta_2, epsilon = 0.01, 0.9, 0.999, 1e-8
gradients = torch.tensor([[0.001, 100.0], [0.002, 50.0], [0.001, -80.0]])

theta, m, v = torch.zeros(2), torch.zeros(2), torch.zeros(2)
for t, g in enumerate(gradients, start=1):
    m = beta_1 * m + (1 - beta_1) * g  # a running mean of the gradients
    v = beta_2 * v + (1 - beta_2) * g**2  # and of their squares
    m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)  # both began at 0
    step = rate * m_hat / (v_hat.sqrt() + epsilon)
    theta = theta - step
    print(f"step {t}: gradients {g[0]:.3f} and {g[1]:6.1f}, the weights move by", *(f"{-s:7.4f}" for s in step))

weights = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.Adam([weights], lr=rate, betas=(beta_1, beta_2), eps=epsilon)
for g in gradients:
    weights.grad = g
    optimizer.step()
print("torch.optim.Adam gives the same:", torch.allclose(weights.detach(), theta))
