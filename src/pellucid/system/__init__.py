"""Files, weights and languages: modules that data, training and apps share."""
