"""Train a Transformer with a loop of your own: a model, an optimizer, and one backward a step.

It learns to write words backwards. `pellucid.train` does all of this from a file of pairs, and adds
validation, checkpoints and the clock.
"""

import random

from pellucid.core.rng import Rng
from pellucid.data.batches import Batches
from pellucid.data.pairs import TextPair
from pellucid.data.tokenizers import train_tokenizer
from pellucid.models import Seq2SeqConfig
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.tasks import Seq2SeqTask

draw = random.Random(0)
words = ["".join(draw.choices("abcdefgh", k=draw.randint(3, 7))) for _ in range(4000)]
pairs = [TextPair(word, (word[::-1],)) for word in words]

# A task is a model with its tokenizers; its vocabulary follows from them.
tokenizer = train_tokenizer(words, "char")
config = Seq2SeqConfig(d_model=64, ffn_dim=128, encoder_layers=2, decoder_layers=2, dropout=0.0)
task = Seq2SeqTask.build(config, [tokenizer, tokenizer])
batches = Batches(task.encode(pairs, max_tokens=16), seed=0, batch_tokens=1024)

model = task.model.train()
optimizer = ModelOptimizer(model.named_parameters(), OptimizerConfig("adamw"))
step = 0
for epoch in range(6):
    for batch in batches.epoch(epoch):
        step += 1
        optimizer.zero_grad()
        loss, backward = model.loss(batch, Rng(0).fold(step))  # dropout is keyed by the step
        backward(1 / loss.tokens)  # adds the gradients of the mean per token
        optimizer.step(lr=2e-3 * min(1, step / 50))
    print(f"epoch {epoch + 1}, step {step}: {loss.nats / loss.tokens:.3f} nats per token")

model.eval()
print(*task.generate(["abcde", "hgfed", "badhead"], beam=4))
