"""An environment of several turns: the model may use a calculator, and is rewarded for the right number.

What the model calls between <call> and </call> is computed in Python and put between <res> and </res>; the
conversation is over when it ends the sequence. A wrong expression is the model's mistake, which it sees as an
empty result; a calculator that fails is not, and gives the conversation back.
"""

import ast
import operator
import re

import robustrl

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
TURNS = 3


def calculate(expression: str) -> str:
    """The value of a sum, difference or product of whole numbers; empty where it is none."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError(expression)

    # Python takes no numbers that begin with a zero, and models write them.
    expression = re.sub(r"\b0+(?=\d)", "", expression)
    try:
        return str(value(ast.parse(expression, mode="eval").body))
    except (SyntaxError, ValueError):
        return ""


def call_of(tokens: list[str]) -> str | None:
    """What stands between the last <call> and a </call> at the end, where no other special token is among it."""
    if tokens[-1:] != ["</call>"] or "<call>" not in tokens:
        return None
    begin = len(tokens) - 1 - tokens[::-1].index("<call>")
    inside = tokens[begin + 1 : -1]
    return None if any(token.startswith("<") for token in inside) else "".join(inside)


@robustrl.environment
async def rollout(prompt, engine):
    tokenizer = engine.job.tokenizer
    number = tokenizer.token_to_id
    stop = [number("<eos>"), number("</call>")]
    ids = [number("<bos>"), *tokenizer.encode(prompt.text, add_special_tokens=False).ids]
    for turn in range(TURNS):
        said = await engine.generate(ids, stop=stop)
        tokens = [tokenizer.id_to_token(token) for token in said.ids]
        expression = call_of(tokens)
        if expression is None or turn + 1 == TURNS:
            break
        result = await engine.tool("calculate", calculate, expression)
        added = [number("<res>"), *tokenizer.encode(result, add_special_tokens=False).ids, number("</res>")]
        ids = [*ids, *said.ids, *added]
    answer = "".join(tokens[:-1]) if tokens[-1:] == ["<eos>"] else ""
    return float(answer == prompt.answer), answer


if __name__ == "__main__":
    robustrl.serve()
