import numpy as np

from asrnorm.data.synthetic.render import recolor_strokes


def test_grey_values_run_from_ground_to_stroke():
    digits = np.array([[[0, 51, 255]]] * 200, np.uint8)
    painted = recolor_strokes(digits, np.random.default_rng(0), contrast=100, light_share=0.5).astype(float)
    ground, between, stroke = painted[:, 0, 0], painted[:, 0, 1], painted[:, 0, 2]
    np.testing.assert_allclose(between, ground + 0.2 * (stroke - ground), atol=1)
    lighter = stroke @ [0.299, 0.587, 0.114] > ground @ [0.299, 0.587, 0.114]
    assert 0.4 < lighter.mean() < 0.6
    assert len(np.unique(ground, axis=0)) == 200
