"""Stages from correlators of configurations to a_mu: common averages, blinded where asked for; the budget."""
