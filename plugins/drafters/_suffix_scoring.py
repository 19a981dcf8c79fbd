"""What to propose when the text so far occurred before, and how sure to be of it.

The matches vote, token by token, each with its length as weight; those that said something else leave, the rest vote
on. This follows the most probable path of the suffix trie in SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975)
without building one.

The confidence of a token is conditional on the tokens before it. Given those, the match has grown by as many, so a
proposal that begins on thin evidence becomes surer as it goes. Measured on 2,251 tokens of greedy and seeded answers
of SmolLM2-135M to copying and open prompts: a lone match of 2, 3, 4, 5 to 6, 9 to 12, 17 to 24, over 32 tokens is
right in 0.42, 0.65, 0.52, 0.69, 0.89, 0.95, 0.98 of cases, near which `length / (length + 2)` runs; three or more that
agree, in 0.94 and more up to a length of 12; the winner of a split vote, in 0.4 to 0.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.hooks.types import EMPTY, Proposal
from pilotfish.plugins.drafters._suffix_index import Match

Confidence = Callable[[int, int, float], float]
"""(length of the longest match in favour, how many are in favour, their share of the votes) -> [0, 1]."""


def prior_confidence(length: int, voters: int, share: float) -> float:
    """The estimate before anything was learned about this model's text."""
    doubt = 2 / (length + 2)
    return share * (1 - doubt / voters)


def draft(
    tokens: Sequence[int],
    matches: Sequence[Match],
    k: int,
    least: float,
    confidence: Confidence = prior_confidence,
) -> Proposal:
    """At most `k` ids that followed `matches` in `tokens`.

    Ends before the first id whose probability of being reached and right is under `least`. A match near the end of
    `tokens` continues into the proposal itself, so a repetition of any period goes on.
    """
    proposed: list[int] = []
    confidences: list[float] = []
    reach = 1.0
    while matches and len(proposed) < k:
        token, voters, share = _vote(tokens, proposed, matches)
        longest = max(match.length for match in voters) + len(proposed)
        sure = confidence(longest, len(voters), share)
        reach *= sure
        if reach < least:
            break
        proposed.append(token)
        confidences.append(sure)
        matches = voters
    return Proposal(tuple(proposed), tuple(confidences)) if proposed else EMPTY


def _vote(tokens: Sequence[int], proposed: Sequence[int], matches: Sequence[Match]) -> tuple[int, list[Match], float]:
    """The id with the most votes (a tie goes to the match listed first), who voted for it, their share of all votes."""
    offset, known = len(proposed), len(tokens)
    parties: dict[int, list[Match]] = {}
    for match in matches:
        at = match.end + offset
        token = tokens[at] if at < known else proposed[at - known]
        parties.setdefault(token, []).append(match)
    if len(parties) == 1:
        return token, parties[token], 1.0
    votes = {token: sum(match.length for match in voters) for token, voters in parties.items()}
    best = max(votes, key=votes.__getitem__)
    return best, parties[best], votes[best] / sum(votes.values())
