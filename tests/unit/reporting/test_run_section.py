from dataclasses import replace

from asrnorm.reporting.run_section import gather, identify, run_section
from asrnorm.studies import Evaluation, RunSpec


def test_cells_of_one_run_share_a_block_with_all_its_seeds(small):
    blocks = gather(small)
    assert [block.spec.recipe for block in blocks.values()] == [
        "digits.erm_none",
        "digits.rsda_none",
        "digits.rsda_asr",
        "digits.rsda_in",
    ]
    assert all([record.seed for record in block.records] == [0, 1, 2] for block in blocks.values())


def test_an_evaluation_is_another_block_and_an_analysis_is_not():
    plain = RunSpec(recipe="digits.rsda_bn")
    again = replace(plain, evaluation=Evaluation(name="bn_test-16", overrides={"norm": "bn_test"}))
    assert identify(plain) != identify(again)
    assert identify(plain) == identify(replace(plain, analyses=("statistics",)))


def test_a_kept_result_has_a_config_and_no_curve(small):
    block = next(iter(gather(small).values()))
    kept = replace(block, records=tuple(replace(record, folder=None) for record in block.records))
    text = run_section(kept)
    assert "No log" in text
    assert "recipe: digits.erm_none" in text


def test_a_result_of_an_unknown_recipe_still_has_a_block(small):
    block = next(iter(gather(small).values()))
    odd = RunSpec(recipe="digits.gone_none")
    records = tuple(replace(record, folder=None, spec=odd) for record in block.records)
    assert "unknown recipe" in run_section(replace(block, spec=odd, records=records))
