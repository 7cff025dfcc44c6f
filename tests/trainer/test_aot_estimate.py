"""The estimator against small programs, written by hand, whose seconds are worked out by hand."""

from __future__ import annotations

import pytest

from patchgym.trainer.aot.chips import Chip, chip_of
from patchgym.trainer.aot.estimate import Assumptions, Estimate, estimate
from patchgym.trainer.aot.exchange import collective_of
from patchgym.trainer.aot.hlo import parse_module
from patchgym.trainer.aot.trips import trip_count

CHIP = Chip(name="toy", memory=1e9, peak=1e12, clock=1000.0, link=100.0, host=50.0)


def run(text: str, trips: int = 1) -> Estimate:
    """The estimate of `text` on a chip of 1,000 cycles and 100 bytes of link a second."""
    given = Assumptions(chip=CHIP, kernels={"my_kernel": 3.0}, trips=trips)
    return estimate(parse_module(text), given)


def cycles(count: int) -> str:
    return f'backend_config={{"estimated_cycles":"{count}"}}'


LOOP = f"""HloModule jit_f, is_scheduled=true

%body (state: (s32[], s32[], f32[2])) -> (s32[], s32[], f32[2]) {{
  %state = (s32[]{{:T(128)}}, s32[], f32[2]{{0}}) parameter(0)
  %index = s32[] get-tuple-element(%state), index=0
  %limit = s32[] get-tuple-element(%state), index=1
  %x = f32[2]{{0}} get-tuple-element(%state), index=2
  %step = s32[] constant(2)
  %next = s32[] add(%index, %step)
  %work = f32[2]{{0}} fusion(%x), calls=%inner, metadata={{op_name="work"}}, {cycles(500)}
  ROOT %out = (s32[], s32[], f32[2]{{0}}) tuple(%next, %limit, %work)
}}

%condition (state: (s32[], s32[], f32[2])) -> pred[] {{
  %state.1 = (s32[], s32[], /*index=2*/f32[2]{{0}}) parameter(0)
  %index.1 = s32[] get-tuple-element(%state.1), index=0
  %limit.1 = s32[] get-tuple-element(%state.1), index=1
  ROOT %less = pred[] compare(%index.1, %limit.1), direction=LT
}}

ENTRY %main (x: f32[2], n: s32[]) -> f32[2] {{
  %x.1 = f32[2]{{0}} parameter(0)
  %n = s32[] parameter(1)
  %begin = s32[] constant(1)
  %end = s32[] LIMIT
  %first = (s32[], s32[], f32[2]{{0}}) tuple(%begin, %end, %x.1)
  %loop = (s32[], s32[], f32[2]{{0}}) while(%first), condition=%condition, body=%body
  ROOT %last = f32[2]{{0}} get-tuple-element(%loop), index=2
}}
"""


def test_a_loop_counts_from_its_start_to_its_limit_by_its_step() -> None:
    # 1, 3, 5, 7: four times half a second.
    found = run(LOOP.replace("LIMIT", "constant(8)"))
    assert found.seconds == found.compute == pytest.approx(2.0)
    ((seconds, name),) = found.parts
    assert (seconds, name) == (2.0, "4 x work work")


def test_a_loop_whose_limit_is_computed_runs_as_often_as_the_caller_says() -> None:
    text = LOOP.replace("LIMIT", "copy(%n)")
    module = parse_module(text)
    main = module.called("main")
    loop = next(one for one in main if one.opcode == "while")
    assert trip_count(module, loop, main) is None
    assert run(text, trips=7).seconds == pytest.approx(3.5)


EXCHANGES = f"""HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[100]) -> f32[400] {{
  %x = f32[100]{{0}} parameter(0)
  %start = (f32[100]{{0}}, f32[400]{{0}}) all-gather-start(%x), replica_groups={{{{0,1,2,3}}}}
  %hides = f32[100]{{0}} fusion(%x), kind=kLoop, calls=%inner, {cycles(5000)}
  ROOT %done = f32[400]{{0}} all-gather-done(%start)
}}
"""


def test_an_exchange_beside_work_costs_what_the_work_does_not_hide() -> None:
    # A rank sends three quarters of 1,600 bytes: 12 s, of which the fusion hides 5.
    found = run(EXCHANGES)
    assert found.compute == pytest.approx(5.0)
    assert found.waiting == pytest.approx(7.0)
    assert found.seconds == pytest.approx(12.0)
    assert (found.traffic["all-gather"].count, found.traffic["all-gather"].bytes) == (1, 1200)


def test_an_exchange_that_is_not_awaited_is_waited_for_at_the_end() -> None:
    lines = [line for line in EXCHANGES.splitlines() if "-done" not in line]
    assert run("\n".join(lines)).seconds == pytest.approx(12.0)


SAME = 'channel_id=7, replica_groups=[8,2], frontend_attributes={chain_id="3"}'
CARRIED = f"""HloModule jit_f, is_scheduled=true

%start_part (p: bf16[50]) -> bf16[100] {{
  %p = bf16[50]{{0}} parameter(0)
  ROOT %g.1 = bf16[100]{{0}} all-gather(%p), {SAME}
}}

%async_collective_fusion.1 (p.1: bf16[50]) -> bf16[100] {{
  %p.1 = bf16[50]{{0}} parameter(0)
  ROOT %g.2 = bf16[100]{{0}} all-gather(%p.1), {SAME}
}}

%done_part (p.2: bf16[50]) -> bf16[100] {{
  %p.2 = bf16[50]{{0}} parameter(0)
  ROOT %g.3 = bf16[100]{{0}} all-gather(%p.2), {SAME}
}}

ENTRY %main (x: bf16[50]) -> bf16[100] {{
  %x = bf16[50]{{0}} parameter(0)
  %async-collective-start = bf16[100]{{0}} fusion(%x), kind=kCustom, calls=%start_part
  %both = bf16[100]{{0}} fusion(%x), kind=kCustom, calls=%async_collective_fusion.1, {cycles(400)}
  ROOT %async-collective-done = bf16[100]{{0}} fusion(%x), kind=kCustom, calls=%done_part
}}
"""


def test_fusions_that_carry_one_exchange_along_count_it_once() -> None:
    # Two devices: half of 200 bytes, 1 s, of which the fusion between hides 0.4.
    found = run(CARRIED)
    assert found.traffic["all-gather"].count == 1
    assert found.seconds == pytest.approx(1.0)


def test_a_sum_of_which_each_rank_keeps_its_part_is_a_reduce_scatter_that_all_wait_for() -> None:
    text = (
        "%all-reduce-scatter.1 (p: f32[400]) -> f32[100] {\n"
        "  %r = f32[400]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1,2,3}}\n}\n"
        "ENTRY %main (x: f32[400]) -> f32[100] {\n"
        "  ROOT %f = f32[100]{0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1\n}"
    )
    # Three quarters of 1,600 bytes.
    found = run(text)
    assert found.traffic["reduce-scatter"].bytes == 1200
    assert found.waiting == found.seconds == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("f32[10]{0} all-reduce(%x), replica_groups={{0,1},{2,3}}", 40),
        ("f32[10]{0} reduce-scatter(%x), replica_groups={{0,1,2}}", 80),
        ("f32[12]{0} all-to-all(%x), replica_groups=[2,4]<=[8]", 36),
        ("bf16[10]{0} collective-permute(%x), source_target_pairs={{0,1}}", 20),
        ("f32[12]{0} all-gather(%x), replica_groups=mesh['a'=2,'b'=6] {'a','b'}", 44),
        ("(f32[3]{0}, s8[12]{0}) all-reduce(%x, %x), replica_groups={{0,1,2,3}}", 36),
    ],
)
def test_what_a_rank_sends(line: str, sent: int) -> None:
    text = f"ENTRY %main (x: f32[9]) -> f32[9] {{\n  ROOT %one = {line}\n}}"
    module = parse_module(text)
    found = collective_of(module, module.called("main")[0])
    assert found is not None
    assert found.bytes == sent


def test_a_kernel_takes_what_the_caller_says_and_an_unknown_one_is_refused() -> None:
    text = (
        "ENTRY %main (x: f32[2]) -> f32[2] {\n"
        "  %x = f32[2]{0} parameter(0)\n"
        '  ROOT %k.1 = f32[2]{0} custom-call(%x), custom_call_target="tpu_custom_call",'
        ' metadata={op_name="jit(f)/my_kernel/pallas_call"}\n}'
    )
    assert run(text).kernels == run(text).seconds == pytest.approx(3.0)
    with pytest.raises(ValueError, match="unknown cost"):
        run(text.replace("my_kernel", "another"))


def test_of_a_conditional_the_dearest_branch_counts() -> None:
    branch = "%{0} (x: f32[2]) -> f32[2] {{\n  ROOT %{0}.1 = f32[2]{{0}} fusion(%x), {1}\n}}\n"
    text = (
        branch.format("cheap", cycles(100))
        + branch.format("dear", cycles(900))
        + "ENTRY %main (x: f32[2]) -> f32[2] {\n"
        "  ROOT %c = f32[2]{0} conditional(%i, %x, %x), branch_computations={%cheap, %dear}\n}"
    )
    assert run(text).seconds == pytest.approx(0.9)


def test_copies_to_the_host_are_waited_for_like_exchanges() -> None:
    text = (
        "ENTRY %main (x: f32[25]) -> f32[25] {\n"
        "  %x = f32[25]{0} parameter(0)\n"
        "  %out = (f32[25]{0:S(5)}, f32[25]{0}, u32[]) copy-start(%x)\n"
        f"  %work = f32[25]{{0}} fusion(%x), {cycles(500)}\n"
        "  ROOT %there = f32[25]{0:S(5)} copy-done(%out)\n}"
    )
    # 100 bytes at 50 a second; half a second is hidden.
    found = run(text)
    assert found.seconds == pytest.approx(2.0)
    assert found.waiting == pytest.approx(1.5)


def test_a_text_that_is_no_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        parse_module("nothing of the kind")


def test_an_unknown_topology_is_refused_with_the_known_chips() -> None:
    assert chip_of("v5p:2x2x1").peak == 459e12
    for wrong in ("v9:2x2", "v5e"):
        with pytest.raises(ValueError, match=r"v5e, v5p, v6e"):
            chip_of(wrong)
