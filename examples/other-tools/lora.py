import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("quickstart/run/model")
model = AutoModelForCausalLM.from_pretrained("quickstart/run/model")
settings = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
lora = get_peft_model(model, settings)
lora.print_trainable_parameters()

ids = tokenizer("The river bends here, slowly, and then it runs to the sea.", return_tensors="pt").input_ids
optimizer = torch.optim.AdamW((p for p in lora.parameters() if p.requires_grad), lr=1e-3)
for _ in range(20):
    loss = lora(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

lora.merge_and_unload().save_pretrained("with-lora")  # ordinary GPT-2 weights
tokenizer.save_pretrained("with-lora")
