"""What a model is worth: scores by domain, accuracy under attack, single predictions, and the lambdas it learned."""
