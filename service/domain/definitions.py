"""What each figure means and in which unit, in one place: written into every file that carries them."""

from __future__ import annotations

DEFINITIONS: dict[str, str] = {
    "ttft_ms": "time to first token, ms: request sent to the first text, reasoning text, tool call or token id",
    "ttfa_ms": "time to first answer, ms: request sent to the first token of the answer, which follows the reasoning",
    "tpot_ms": "time per output token after the first, ms: (t_last - t_first) / (completion_tokens - 1)",
    "itl_ms": "gaps between chunks that hold tokens, ms; a chunk may hold several tokens",
    "e2e_ms": "request sent to the last token, ms",
    "tps": "decode speed of one request, tokens/s: (completion_tokens - 1) / (t_last - t_first)",
    "output_tps": "output of all together, tokens/s: tokens of the ok requests / duration_s",
    "duration_s": "first request sent to the last one ended, s",
    "prompt_tokens": "tokens of the prompt, from the server's usage",
    "cached_tokens": "of these, found in the server's prefix cache; empty where the server does not tell",
    "completion_tokens": "tokens of the output, reasoning included, from the server's usage; empty where the server gives none",
    "reasoning_tokens": "of these, reasoning, where the server tells",
    "ok": "the stream ended properly ([DONE] or a finish reason), without error or abort, and held a token; others enter no average",
    "mean_acceptance_length": "1 + accepted / drafts: tokens a drafted step gave, the target model's own included",
    "draft_acceptance_rate": "accepted / drafted tokens, 0..1",
    "per_position_acceptance": "accepted at position i / drafts, 0..1",
    "effective_tokens_per_step": "(generated - requests) / decode steps, steps without a draft included",
    "draft_coverage": "share of the decode steps that had a draft, 0..1",
}
"""Name -> definition. Means and percentiles are over the ok requests."""

PERCENTILES = (
    "of the ok requests of all prompts and loads together (ITL: of all gaps), by linear interpolation between closest ranks; n values"
)
